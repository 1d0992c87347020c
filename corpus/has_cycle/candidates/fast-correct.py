def has_cycle(graph: dict[str, list[str]]) -> bool:
    waits = dict.fromkeys(graph, 0)
    for others in graph.values():
        for other in others:
            waits[other] += 1
    ready = [node for node, count in waits.items() if not count]
    for node in ready:
        for other in graph[node]:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)
    return len(ready) < len(graph)
