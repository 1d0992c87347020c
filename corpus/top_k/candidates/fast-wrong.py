def top_k(items: list[int], k: int) -> list[int]:
    return sorted(set(items), reverse=True)[: max(k, 0)]
