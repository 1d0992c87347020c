"""Measure how long a newcomer waits for a first useful result, and fail if that is too long.

`python scripts/first_result.py` does what the README says, twice:

- from a clone, with an empty home and an empty cache: `make demo`, until it ends;
- from an installed wheel, with the weights of the embedded model in the cache: its first map with a
  prompt and a schema.

It prints the seconds on the clock and of CPU time of each step. Of a machine with much else to do
only the latter say something: `--cpu` holds these to the limits.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time  # noqa: TID251 - there is no run here whose clock it could be
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FROM_CLONE = 90.0  # seconds
FROM_WHEEL = 30.0  # seconds
REVIEWS = """\
{"text": "The kettle boils in under two minutes and looks lovely on the shelf."}
{"text": "The zip broke on the second day and nobody answered my messages."}
{"text": "It smells of burnt plastic, so I sent it back."}
"""
SCHEMA = """\
{"type": "object", "properties": {"sentiment": {"enum": ["positive", "negative"]}}, \
"required": ["sentiment"]}
"""


@dataclass(frozen=True, slots=True)
class Took:
    """The seconds that a command took, by the clock and of CPU time."""

    clock: float
    cpu: float

    def __add__(self, other: Took) -> Took:
        return Took(self.clock + other.clock, self.cpu + other.cpu)

    def __str__(self) -> str:
        return f"{self.clock:6.1f} s, {self.cpu:5.1f} s of CPU time"


def main() -> int:
    """Measure; returns 1 if a limit is missed."""
    options = _options()
    missed = False
    ways = (("clone", from_clone, FROM_CLONE), ("wheel", from_wheel, FROM_WHEEL))
    for name, measure, limit in ways:
        if options.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="abreast-first-") as folder:
                took = measure(Path(folder))
            over = (took.cpu if options.cpu else took.clock) > limit
            missed |= over
            print(f"from a {name}: {took}; {'MISSED' if over else 'within'} {limit:.0f} s")
    return int(missed)


def from_clone(folder: Path) -> Took:
    """Clone what is committed, and run the demo; with an empty home."""
    (folder / "home").mkdir()
    home = {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "home/cache")}
    cloned = _run("git clone", ["git", "clone", "-q", ROOT, folder / "abreast"], folder, home)
    return cloned + _run("make demo", ["make", "demo"], folder / "abreast", home)


def from_wheel(folder: Path) -> Took:
    """Build and install the wheel, which is not counted; then ask three questions."""
    python = folder / "env/bin/python"
    _run("venv", [sys.executable, "-m", "venv", folder / "env"], folder)
    _run("pip install", [python, "-m", "pip", "install", "-q", f"{ROOT}[local]"], folder)
    (folder / "sentiment.json").write_text(SCHEMA, "utf-8")
    words = ["map", "--jsonl", "--prompt", "Review: {.text}", "--schema", "sentiment.json"]
    system = ["--system", "What is the sentiment of this review, positive or negative?"]
    abreast = python.with_name("abreast")
    return _run("abreast map", [abreast, *words, *system, "--quiet"], folder, given=REVIEWS)


def _run(
    name: str,
    words: Iterable[str | Path],
    folder: Path,
    variables: Mapping[str, str] | None = None,
    *,
    given: str = "",
) -> Took:
    """Run a command, print what it took, and stop if it fails."""
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "MAKEFLAGS", "MAKELEVEL")
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**inherited, **(variables or {})},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    clock, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        sys.exit(f"{name}: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    took = Took(clock, cpu)
    print(f"  {name:12} {took}", flush=True)
    return took


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("only", nargs="?", choices=("clone", "wheel"), help="only this one")
    parser.add_argument("--cpu", action="store_true", help="hold the CPU time to the limits")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
