def has_cycle(graph: dict[str, list[str]]) -> bool:
    for start in graph:
        seen = {start}
        waiting = [start]
        while waiting:
            for other in graph[waiting.pop()]:
                if other in seen:
                    return True
                seen.add(other)
                waiting.append(other)
    return False
