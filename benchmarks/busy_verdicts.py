"""The same candidates at width 1 and 2, with the machine to themselves and beside busy loops.

    python -m benchmarks.busy_verdicts                 # three functions: half an hour
    python -m benchmarks.busy_verdicts --loops 8 roman

`abreast optimize` tries the candidates of each function four times. It prints the verdicts side by
side, and ends with 1 if two runs decided otherwise of a candidate: noise may leave one `undecided`,
and one that is just about as fast may be `same` in one run and `slower` in another, but nothing may
be `faster`, `wrong` or `refused` in one run and not in another.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.corpus import Specimen, optimized, repository, specimens

USUAL = ("digital_root", "lengths", "run_lengths")
LOOP = "while True: pass"
# Verdicts between which noise may decide; by neither a candidate is accepted or found wrong.
NOT_FASTER = {"same": "same or slower", "slower": "same or slower"}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that do nothing but run."""
    children = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(loops)]
    try:
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def verdicts(specimen: Specimen, width: int, loops: int) -> dict[str, str]:
    """The verdict on each candidate of a function."""
    with repository() as top, busy(loops):
        found = optimized(specimen, top, width)
    if found.hangs or found.escapes:
        sys.exit(f"{specimen.name}: {found.hangs} hangs, {found.escapes} escapes")
    print(
        f"{specimen.name}, width {width}, {loops} busy loops: {found.seconds:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return {one.candidate: one.verdict for one in found.results}


def differ(said: list[str]) -> bool:
    """Whether the runs that decided did not decide alike."""
    return len({NOT_FASTER.get(word, word) for word in said if word != "undecided"}) > 1


def _head(width: int, loops: int) -> str:
    return f"width {width}, {'busy' if loops else 'quiet'}"


def main() -> None:
    """Try all, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=USUAL, help="functions of the corpus")
    parser.add_argument("--loops", type=int, default=8)
    given = parser.parse_args()
    ways = [(width, loops) for loops in (0, given.loops) for width in (1, 2)]
    print(f"{'':36}" + "".join(f"{_head(width, loops):>16}" for width, loops in ways), flush=True)
    rows = []
    for specimen in specimens(given.names):
        found = [verdicts(specimen, width, loops) for width, loops in ways]
        for candidate in found[0]:
            said = [one.get(candidate, "missing") for one in found]
            rows.append(said)
            name, mark = f"{specimen.name}/{candidate}", "  DIFFER" if differ(said) else ""
            print(f"{name:36}" + "".join(f"{word:>16}" for word in said) + mark, flush=True)
    bad = sum(map(differ, rows))
    undecided = sum(said.count("undecided") for said in rows)
    print(f"{len(rows)} candidates, {len(ways)} runs each: {bad} differ, {undecided} undecided")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
