def common_prefix(words: list[str]) -> str:
    while True:
        pass
