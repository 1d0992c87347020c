def reachable(graph: dict[str, list[str]], start: str) -> list[str]:
    seen = {start: None}
    waiting = [start]
    while waiting:
        for other in graph[waiting.pop()]:
            if other not in seen:
                seen[other] = None
                waiting.append(other)
    return list(seen)
