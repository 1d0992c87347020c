from heapq import heappop, heappush


def shortest_paths(graph: dict[str, dict[str, int]], start: str) -> dict[str, int]:
    far: dict[str, int] = {}
    waiting = [(0, start)]
    while waiting:
        length, node = heappop(waiting)
        if node in far:
            continue
        far[node] = length
        for other, more in graph.get(node, {}).items():
            if other not in far:
                heappush(waiting, (length + more, other))
    return dict(sorted(far.items()))
