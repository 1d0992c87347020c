"""Measure abreast beside its peers.

`python -m benchmarks [A A0 B C D D2 H W growth] [--rounds 5] [--quick]`.
"""

import argparse
import json
import sys

from benchmarks import records, tables, targets
from benchmarks.rounds import Result, play
from benchmarks.works import works

NAMES = tuple(works())


def main() -> int:
    """Play the works, print a table each and the targets, write the record.

    1 if a contender failed.
    """
    args = _arguments()
    chosen, rounds = works(quick=args.quick), args.rounds or (2 if args.quick else 5)
    names: list[str] = [name for name in NAMES if name in (args.works or NAMES)]
    played: dict[str, list[Result]] = {}
    for name in names:
        played[name] = play(chosen[name], rounds, _tell)
        if not args.json:
            print(tables.table(chosen[name], played[name]), end="\n\n", flush=True)
    judged = [verdict for name in names for verdict in targets.judge(name, played[name])]
    document = records.record(played, judged, quick=args.quick)
    path = records.write(document, names)
    print(json.dumps(document) if args.json else tables.verdicts(judged))
    _tell(f"written to benchmarks/results/{path.name}")
    return int(any(result.failed for results in played.values() for result in results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "works",
        nargs="*",
        metavar="WORK",
        help=f"which of {' '.join(NAMES)}; all when none is named",
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds per work; the medians count (default 5, with --quick 2)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller works, to try the harness out"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the record instead of the tables"
    )
    args = parser.parse_args()
    if unknown := [name for name in args.works if name not in NAMES]:
        parser.error(f"no such work: {', '.join(unknown)} (there are {', '.join(NAMES)})")
    if args.rounds is not None and args.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {args.rounds}")
    return args


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
