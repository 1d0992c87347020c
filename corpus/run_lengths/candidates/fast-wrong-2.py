import re


def run_lengths(text: str) -> list[tuple[str, int]]:
    return [(one.group(1), len(one.group())) for one in re.finditer(r"(.)\1*", text)]
