from heapq import nlargest


def top_k(items: list[int], k: int) -> list[int]:
    return nlargest(k, items)
