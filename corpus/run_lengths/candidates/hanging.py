import time


def run_lengths(text: str) -> list[tuple[str, int]]:
    time.sleep(10**6)
