from itertools import groupby


def run_lengths(text: str) -> list[tuple[str, int]]:
    return [(letter, len(list(run))) for letter, run in groupby(text)]
