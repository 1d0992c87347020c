def components(graph: dict[str, list[str]]) -> list[list[str]]:
    near = {node: set(others) for node, others in graph.items()}
    for node, others in graph.items():
        for other in others:
            near[other].add(node)
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
            new = near[node] - seen
            seen |= new
            waiting.extend(new)
        groups.append(sorted(group))
    return sorted(groups)
