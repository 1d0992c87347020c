def windows(items: list[int], size: int):
    while True:
        pass
    yield
