def topological(graph: dict[str, list[str]]) -> list[str]:
    waits = dict.fromkeys(graph, 0)
    for others in graph.values():
        for other in set(others):
            waits[other] += 1
    ready = sorted(node for node, count in waits.items() if not count)
    order = []
    for node in ready:
        order.append(node)
        for other in graph[node]:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    if len(order) < len(graph):
        raise ValueError("a cycle")
    return order
