"""How far each node is that can be reached, by name."""

def shortest_paths(graph: dict[str, dict[str, int]], start: str) -> dict[str, int]:
    """How far each node is that can be reached, by name."""
    far = {start: 0}
    for _ in graph:
        for node in graph:
            if node not in far:
                continue
            for other, length in graph[node].items():
                if other not in far or far[node] + length < far[other]:
                    far[other] = far[node] + length
    return dict(sorted(far.items()))
