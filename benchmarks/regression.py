"""Compare this tree with an earlier one, interleaved in one run: `python -m benchmarks.regression [--base REF]`.

Both trees play the same contender from this tree's benchmarks; only the library differs. The ratio of the medians says
whether this tree became slower. Exits 1 past 1.25 x.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from benchmarks.measure import chat_server
from benchmarks.works import works

ROOT = Path(__file__).resolve().parents[1]
MOST = 1.25
# work, items, width, maps in one process
LOADS = (
    ("A", 10_000, 100, 1),
    ("A0", 10_000, 100, 1),
    ("C", 1_000, 50, 2),
    ("D", 2_000, 200, 1),
    ("P15", 1_500, 10, 1),
    ("P10k", 10_000, 1, 1),
)
PLANS = ("P15", "P10k")


def git(*words: str) -> str | None:
    """What git says in this tree; None if it refuses."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def find_base() -> str:
    """The newest release, else where this branch left the main one, else the commit before this one."""
    tag = git("describe", "--tags", "--abbrev=0")
    left = git("merge-base", "HEAD", "origin/main")
    return tag or (left if left and left != git("rev-parse", "HEAD") else None) or "HEAD~1"


@contextmanager
def checked_out(ref: str) -> Iterator[Path]:
    """The library as it was at `ref`, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "base"
        if git("worktree", "add", "--detach", "--quiet", str(place), ref) is None:
            raise SystemExit(f"there is no commit {ref!r} to compare with; name one with --base")
        try:
            yield place / "src"
        finally:
            git("worktree", "remove", "--force", str(place))


def cpu_per_item(library: Path, load: tuple[str, int, int, int], told: dict[str, str]) -> float:
    """Microseconds of CPU per item with that library, in a fresh process; `told` is where the chat server is."""
    contender = "plan_abreast" if load[0] in PLANS else "chat_abreast" if load[0] == "D" else "abreast_map"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | told
    command = [sys.executable, "-m", f"benchmarks.contenders.{contender}", *map(str, load)]
    done = subprocess.run(command, cwd=ROOT, env={**environment, "PYTHONPATH": str(library)}, capture_output=True,
                          text=True, check=True, timeout=300)  # fmt: skip
    sample = json.loads(done.stdout.splitlines()[-1])
    return float(sample["cpu"] / sample["items"] * 1e6)


def compare(load: tuple[str, int, int, int], trees: dict[str, Path], rounds: int) -> float:
    """Measure both trees in turn, print the medians, and give their ratio."""
    samples: dict[str, list[float]] = {name: [] for name in trees}
    server: AbstractContextManager[dict[str, str]] = nullcontext({})
    if load[0] == "D":
        server = chat_server(works()["D"].entries[0])
    with server as told:
        for _ in range(rounds):
            for name, library in trees.items():
                samples[name].append(cpu_per_item(library, load, told))
    now, before = (statistics.median(samples[name]) for name in trees)
    print(f"  {load[0]:<3} {now:8.1f} {before:8.1f}   {now / before:.2f} x", flush=True)
    return now / before


def main() -> int:
    """Compare, print, and say by the exit code whether it became slower."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=None, help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    base = given.base or find_base()
    print(f"cpu us/item: this tree, {base}, and their ratio (at most {MOST} x)")
    with checked_out(base) as library:
        trees = {"now": ROOT / "src", "before": library}
        loads = [load for load in LOADS if load[0] not in PLANS or (library / "abreast/jobs/plan/execute.py").exists()]
        ratios = [compare(load, trees, given.rounds) for load in loads]
    return 1 if max(ratios) > MOST else 0


if __name__ == "__main__":
    raise SystemExit(main())
