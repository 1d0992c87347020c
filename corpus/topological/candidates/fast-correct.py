from heapq import heapify, heappop, heappush


def topological(graph: dict[str, list[str]]) -> list[str]:
    waits = dict.fromkeys(graph, 0)
    for others in graph.values():
        for other in set(others):
            if other in waits:
                waits[other] += 1
    ready = [node for node, count in waits.items() if not count]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)
        order.append(node)
        for other in set(graph[node]):
            if other in waits:
                waits[other] -= 1
                if not waits[other]:
                    heappush(ready, other)
    if len(order) < len(graph):
        raise ValueError("a cycle")
    return order
