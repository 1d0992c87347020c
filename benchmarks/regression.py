"""Compare this tree with an earlier one, interleaved in one run.

`python -m benchmarks.regression [--base REF]`.

Both trees play the same contender from this tree's benchmarks; only the library differs. The median
of the ratios of each round says whether this tree became slower. Exits 1 past 1.25 x.

`--short` plays three small loads in well under a minute and is a part of `make check`: it exits 1
past 1.5 x (A: 2 x), measured again with more rounds before it does, and exits 0 with a sentence
where there is no earlier commit to compare with.
"""

import argparse
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from benchmarks.archives import only_data
from benchmarks.measure import chat_server
from benchmarks.works import works

ROOT = Path(__file__).resolve().parents[1]
MOST = 1.25
# On two shared cores the median of a short comparison of equal trees stays below 1.2: this leaves
# room above that.
MOST_SHORT = 1.5
# A is some 10 us of our own per item, which work longer than a function call hides.
MOST_OF_SHORT = {"A": 2.0}
ROUNDS, ROUNDS_SHORT, ROUNDS_AGAIN = 5, 3, 9

Load = tuple[str, int, int, int]
# work, items, width, maps in one process
LOADS: tuple[Load, ...] = (
    ("A", 10_000, 100, 1),
    ("A0", 10_000, 100, 1),
    ("C", 1_000, 50, 2),
    ("D", 2_000, 200, 1),
    ("P15", 1_500, 10, 1),
    ("P10k", 10_000, 1, 1),
)
SHORT_LOADS: tuple[Load, ...] = (("A", 5_000, 100, 2), ("C", 500, 50, 2), ("D", 200, 100, 2))
PLANS = ("P15", "P10k")


class NotInstalled(Exception):
    """One of the two commits stands on a package that is not installed."""


class NoBase(Exception):
    """There is no earlier commit to compare with."""


def git(*words: str) -> bytes | None:
    """What git says in this tree; None if it refuses, or is not there."""
    try:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", *words], cwd=ROOT, capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def line_of_git(*words: str) -> str | None:
    """The one line that git says, or None."""
    said = git(*words)
    return said.decode().strip() if said else None


def commit_of(ref: str) -> str | None:
    """The full name of the commit that `ref` stands for, if there is one."""
    return line_of_git("rev-parse", "--quiet", "--verify", f"{ref}^{{commit}}")


def find_base() -> str:
    """The newest release, else where this branch left the main one, else the previous commit."""
    tag = line_of_git("describe", "--tags", "--abbrev=0")
    left = line_of_git("merge-base", "HEAD", "origin/main")
    return tag or (left if left and left != commit_of("HEAD") else None) or "HEAD~1"


@contextmanager
def checked_out(ref: str) -> Iterator[Path]:
    """The library as it was at `ref`, for as long as it is needed; the repository is only read."""
    if not (ROOT / ".git").exists() or commit_of(ref) is None:
        raise NoBase(f"there is no commit {ref!r} to compare with; name one with --base")
    packed = git("archive", "--format=tar", ref, "src")
    if packed is None:
        raise NoBase(f"the commit {ref!r} has no src to compare with; name another one with --base")
    with tempfile.TemporaryDirectory() as folder:
        with only_data(tarfile.open(fileobj=io.BytesIO(packed))) as archive:
            archive.extractall(folder)
        yield Path(folder) / "src"


def cpu_per_item(library: Path, load: Load, told: dict[str, str]) -> float:
    """Microseconds of CPU per item with that library, in a fresh process.

    `told` is where the chat server is.
    """
    contender = (
        "plan_abreast" if load[0] in PLANS else "chat_abreast" if load[0] == "D" else "abreast_map"
    )
    ours = ("PYTHON", "COVERAGE")  # settings of the caller's that would be measured, too
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(ours)
    } | told
    command = [sys.executable, "-m", f"benchmarks.contenders.{contender}", *map(str, load)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(library)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if missing := re.search(r"ModuleNotFoundError: (.*)", done.stderr):
        raise NotInstalled(missing[1])
    done.check_returncode()
    sample = json.loads(done.stdout.splitlines()[-1])
    return float(sample["cpu"] / sample["items"] * 1e6)


def compare(load: Load, trees: dict[str, Path], rounds: int) -> float:
    """Measure both trees in turn, print the medians, and return the median ratio of the rounds."""
    samples: dict[str, list[float]] = {name: [] for name in trees}
    server: AbstractContextManager[dict[str, str]] = nullcontext({})
    if load[0] == "D":
        server = chat_server(works()["D"].entries[0])
    with server as told:
        for number in range(rounds):
            # Each goes first in every other round: neither always has the warmer machine.
            for name in sorted(trees, reverse=number % 2 == 0):
                samples[name].append(cpu_per_item(trees[name], load, told))
    ratio = statistics.median(
        now / before for now, before in zip(samples["now"], samples["before"], strict=True)
    )
    now, before = (statistics.median(samples[name]) for name in ("now", "before"))
    print(f"  {load[0]:<3} {now:8.1f} {before:8.1f}   {ratio:.2f} x", flush=True)
    return ratio


def became_slower(
    load: Load, trees: dict[str, Path], rounds: int, most: float, *, again: int = 0
) -> bool:
    """Whether a load takes more than `most` times as long.

    With `again`, only if that many rounds say so too.
    """
    try:
        if compare(load, trees, rounds) <= most:
            return False
    except NotInstalled as error:
        print(
            f"  {load[0]:<3} is not compared, a package of one commit is gone: {error}", flush=True
        )
        return False
    if not again:
        return True
    print(f"  {load[0]:<3} is past {most} x: measured again, {again} rounds", flush=True)
    return compare(load, trees, again) > most


def run(base: str, *, short: bool, rounds: int) -> int:
    """Compare with a commit; 1 if a load became slower."""
    most = MOST_SHORT if short else MOST
    print(f"cpu us/item: this tree, {base}, and their ratio (at most {most} x)", flush=True)
    with checked_out(base) as library:
        trees = {"now": ROOT / "src", "before": library}
        plans = (library / "abreast/jobs/plan/job.py").exists()
        loads = SHORT_LOADS if short else [load for load in LOADS if load[0] not in PLANS or plans]
        again = ROUNDS_AGAIN if short else 0
        bars = MOST_OF_SHORT if short else {}
        slower = [
            load[0]
            for load in loads
            if became_slower(load, trees, rounds, bars.get(load[0], most), again=again)
        ]
    if slower:
        print(f"slower than {base} by more than {most} x: {', '.join(slower)}", file=sys.stderr)
    return 1 if slower else 0


def main() -> int:
    """Compare, print, and say by the exit code whether it became slower."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", default=None, help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--short", action="store_true", help="three small loads, for every change")
    given = parser.parse_args()
    rounds = given.rounds or (ROUNDS_SHORT if given.short else ROUNDS)
    try:
        return run(given.base or find_base(), short=given.short, rounds=rounds)
    except NoBase as error:
        if given.short and given.base is None:
            print(f"benchmarks are not compared: {error}")
            return 0
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    raise SystemExit(main())
