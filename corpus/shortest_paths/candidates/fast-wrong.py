def shortest_paths(graph: dict[str, dict[str, int]], start: str) -> dict[str, int]:
    far = {start: 0}
    waiting = [start]
    for node in waiting:
        for other, more in graph.get(node, {}).items():
            if other not in far:
                far[other] = far[node] + more
                waiting.append(other)
    return dict(sorted(far.items()))
