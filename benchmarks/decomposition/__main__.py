"""Measures how plans divide.

    python -m benchmarks.decomposition                 # six repositories: imports cut, and the rest
    python -m benchmarks.decomposition networkx zod    # some of them
    python -m benchmarks.decomposition --files 50000   # CPU and memory of `abreast plan show`
    python -m benchmarks.decomposition --times         # dividing alone, 1,000 and 10,000 files

It ends with 1 if a bar is missed. Repositories, and METIS to compare with, are fetched once, into
a cache in your home directory; what can't be fetched is skipped.
"""

import argparse

from benchmarks.decomposition.quality import print_quality
from benchmarks.decomposition.repositories import REPOSITORIES
from benchmarks.decomposition.scale import print_scale
from benchmarks.decomposition.times import print_times


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.decomposition",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = [repository.name for repository in REPOSITORIES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--files", type=int, metavar="N", help="of a generated repository")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--rounds", type=int, default=3, help="of --times")
    given = parser.parse_args()
    if unknown := set(given.names).difference(known):
        parser.error(f"there is no {unknown.pop()}; there are {', '.join(known)}")
    if given.files is not None:
        return print_scale(given.files)
    return print_times(given.rounds) if given.times else print_quality(given.names)


if __name__ == "__main__":
    raise SystemExit(main())
