def top_k(items: list[int], k: int) -> list[int]:
    while True:
        pass
