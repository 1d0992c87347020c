"""Each node after those that lead to it; of several, the first by name."""

def topological(graph: dict[str, list[str]]) -> list[str]:
    """Each node after those that lead to it; of several, the first by name."""
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
