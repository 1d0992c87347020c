"""What can be reached, nearest first."""

def reachable(graph: dict[str, list[str]], start: str) -> list[str]:
    """What can be reached, nearest first."""
    seen = [start]
    waiting = [start]
    while waiting:
        node = waiting.pop(0)
        for other in graph[node]:
            if other not in seen:
                seen.append(other)
                waiting.append(other)
    return seen
