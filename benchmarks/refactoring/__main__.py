"""Ten agents at once rename two names throughout networkx, by `abreast plan`.

    python -m benchmarks.refactoring               # networkx with its own tests: some minutes
    python -m benchmarks.refactoring --small       # a package that is written here: seconds

Each part of the package is an agent's, a plain command in a worktree of its own. Agents ask the
owners of other parts for changes, which are made in a second round; three conflicts are shown and
resolved; the merge is checked and applied, the package's own tests run before and after, and one
undo brings every byte back. It ends with 1 if anything of that is not so.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.refactoring.sources import (
    IN_NETWORKX,
    IN_SMALL,
    download_networkx,
    make_repository,
    write_small,
)
from benchmarks.refactoring.trial import Findings, Trial, TrialFailed

TESTS = ("tests before", "tests after")


def table(found: Findings) -> list[tuple[str, str]]:
    """The findings as rows."""
    steps = [took for step, took in found.seconds.items() if step not in TESTS]
    wall, cpu = (sum(took[which] for took in steps) for which in (0, 1))
    undone = "yes" if not found.undo_differences else f"no: {len(found.undo_differences)} differ"
    return [
        ("parts", f"{found.parts}"),
        ("at once, as reported", f"{found.peak}"),
        ("at once, as agents counted", f"{found.peak_seen}"),
        ("agents in two rounds", f"{found.agents}"),
        ("requests", f"{found.requests} to {found.asked_parts} parts"),
        ("conflicts resolved", f"{len(found.conflicts)} ({'; '.join(found.conflicts)})"),
        ("gate", found.gate),
        ("files changed", f"{found.files_changed}"),
        ("files with an old name", f"{found.old_names_left}"),
        ("tests before", _counts(found.tests_before)),
        ("tests after", _counts(found.tests_after)),
        ("undo exact", undone),
        *(
            (f"seconds: {step}", f"{took[0]:.1f}, {took[1]:.1f} of CPU")
            for step, took in found.seconds.items()
        ),
        ("seconds, without tests", f"{wall:.1f}, {cpu:.1f} of CPU"),
    ]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {word}" for word, count in counts.items())


def main() -> int:
    """Play the trial, and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.refactoring",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--small", action="store_true", help="a package that is written here")
    small = parser.parse_args().small
    with tempfile.TemporaryDirectory(prefix="refactoring-") as place:
        root = Path(place, "repository")
        root.mkdir()
        (write_small if small else download_networkx)(root)
        make_repository(root)
        processes = ("-n", "0" if small else "2")
        what = IN_SMALL if small else IN_NETWORKX
        trial = Trial(root, what, tests=processes, say=partial(print, flush=True))
        try:
            trial.play()
        except TrialFailed as error:
            print(error, file=sys.stderr)
            return 1
    rows = table(trial.found)
    for name, value in rows:
        print(f"{name:<28} {value}")
    faults = trial.found.faults()
    for fault in faults:
        print(f"wrong: {fault}", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
