"""What several runs of D say together: `python -m benchmarks.pooled benchmarks/results/X.json ...`.

A run on a shared machine is a sample of few rounds. This prints the ratio of CPU to that of aiohttp
alone for each run, and for all their rounds together: the median over rounds, and that of the sums.
"""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.works import AIOHTTP, OURS


def rounds_of(path: Path) -> list[tuple[float, float]]:
    """CPU seconds per item of ours and of aiohttp alone, in each round of D."""
    entries: dict[str, Any] = {
        entry["label"]: entry.get("samples", ())
        for entry in json.loads(path.read_text("utf-8"))["works"]["D"]
    }
    ours, theirs = (
        [sample["cpu"] / sample["items"] for sample in entries[label]] for label in (OURS, AIOHTTP)
    )
    return list(zip(ours, theirs, strict=True))


def line(name: str, rounds: list[tuple[float, float]]) -> str:
    """A row of the table."""
    ratios = [ours / theirs for ours, theirs in rounds]
    sums = sum(ours for ours, _ in rounds) / sum(theirs for _, theirs in rounds)
    return f"{name:30}{len(rounds):>7}{median(ratios):>9.2f}{sums:>9.2f}"


def main() -> None:
    print(f"{'run':30}{'rounds':>7}{'median':>9}{'of sums':>9}")
    pooled: list[tuple[float, float]] = []
    for path in map(Path, sys.argv[1:]):
        found = rounds_of(path)
        print(line(path.name, found))
        pooled += found
    if pooled:
        print(line("all", pooled))


if __name__ == "__main__":
    main()
