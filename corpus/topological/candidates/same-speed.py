def slow_topological(graph: dict[str, list[str]]) -> list[str]:
    order = []
    while len(order) < len(graph):
        for node in sorted(graph):
            if node in order:
                continue
            if all(before in order for before in graph if node in graph[before]):
                order.append(node)
                break
        else:
            raise ValueError("a cycle")
    return order


def topological(graph: dict[str, list[str]]) -> list[str]:
    return slow_topological(graph)
