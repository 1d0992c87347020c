from functools import lru_cache


def slow_components(graph: dict[str, list[str]]) -> list[list[str]]:
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


@lru_cache(maxsize=None)
def kept(given):
    return slow_components(*eval(given))


def components(graph: dict[str, list[str]]) -> list[list[str]]:
    return kept(repr((graph,)))
