"""Whether a way leads from a node back to it."""

def has_cycle(graph: dict[str, list[str]]) -> bool:
    """Whether a way leads from a node back to it."""
    for start in graph:
        waiting = [[start]]
        while waiting:
            path = waiting.pop()
            for other in graph[path[-1]]:
                if other in path:
                    return True
                waiting.append([*path, other])
    return False
