def components(graph: dict[str, list[str]]) -> list[list[str]]:
    seen = set()
    groups = []
    for start in graph:
        if start in seen:
            continue
        seen.add(start)
        group, waiting = [], [start]
        while waiting:
            node = waiting.pop()
            group.append(node)
            new = set(graph[node]) - seen
            seen |= new
            waiting.extend(new)
        groups.append(sorted(group))
    return sorted(groups)
