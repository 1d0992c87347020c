def slow_has_cycle(graph: dict[str, list[str]]) -> bool:
    for start in graph:
        waiting = [[start]]
        while waiting:
            path = waiting.pop()
            for other in graph[path[-1]]:
                if other in path:
                    return True
                waiting.append([*path, other])
    return False


def has_cycle(graph: dict[str, list[str]]) -> bool:
    return slow_has_cycle(graph)
