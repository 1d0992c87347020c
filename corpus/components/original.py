"""Nodes that hang together, each group in order."""

def components(graph: dict[str, list[str]]) -> list[list[str]]:
    """Nodes that hang together, each group in order."""
    groups = [{node} for node in graph]
    changed = True
    while changed:
        changed = False
        for node in graph:
            for other in graph[node]:
                one = next(group for group in groups if node in group)
                two = next(group for group in groups if other in group)
                if one is not two:
                    groups.remove(two)
                    one |= two
                    changed = True
    return sorted(sorted(group) for group in groups)
