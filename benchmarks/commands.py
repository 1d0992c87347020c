"""Measure `abreast map` beside `xargs -P` and GNU parallel.

`python -m benchmarks.commands [--rounds 9] [--quick]`.

Every contender runs the same command for the same lines in a process of its own, start-up included;
the CPU time is that of its whole tree of processes. The machine's speed drifts by a third within
seconds, so those who are compared run one right after the other, in turns the one or the other
first, and what counts is the median of the rounds' ratios. The last contenders are ways to start a
command from Python, without input, order or journal: they say what the rest of `abreast map` costs.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import records, tables
from benchmarks.measure import SCRATCH, TIMEOUT, NotMeasured, Sample
from benchmarks.peers import ROOT
from benchmarks.rounds import Result
from benchmarks.targets import Verdict
from benchmarks.works import OURS, Entry, Work

WIDTH = 8
XARGS = "xargs -P"
PARALLEL = "GNU parallel -k --joblog"
MAP = f"{OURS} map"
RUNNERS = {
    f"{OURS}, its runner alone": "commands",
    "posix_spawn, nothing captured": "spawn",
    "subprocess.run in threads": "popen",
    "asyncio subprocess": "asyncio",
}
LABELS = (XARGS, MAP, PARALLEL, *RUNNERS)  # who are compared stand side by side


@dataclass(frozen=True, slots=True)
class Load:
    """The command of a work, how often it runs, and what it is called."""

    name: str
    title: str
    argv: tuple[str, ...]
    n: int

    def work(self) -> Work:
        """As the tables want it."""
        return Work(
            self.name,
            self.title,
            XARGS,
            tuple(Entry(label, n=self.n, width=WIDTH) for label in LABELS),
        )


def loads(*, quick: bool = False) -> list[Load]:
    """Return the two works; `quick` ones are smaller, for trying the harness out."""
    many, some = (200, 40) if quick else (2_000, 200)
    # By way of a shell that ignores the line, which everybody adds at the end.
    nap = ("sh", "-c", "exec sleep 0.1")
    return [
        Load("true", f"{many:,} commands `true`, {WIDTH} at once", ("true",), many),
        Load(
            "sleep",
            f"{some:,} commands `sleep 0.1`, {WIDTH} at once; ideal {some * 0.1 / WIDTH:.2f} s",
            nap,
            some,
        ),
    ]


def command_of(label: str, load: Load, scratch: Path) -> list[str]:
    """Return what to start for a contender; NotMeasured if it isn't there."""
    if label == XARGS:
        return [_installed("xargs"), "-P", str(WIDTH), "-n", "1", *load.argv]
    if label == PARALLEL:
        options = ["--will-cite", "-q", "-k", "-j", str(WIDTH), "--joblog", str(scratch / "joblog")]
        return [_installed("parallel"), *options, *load.argv]
    if label == MAP:
        if not (ROOT / "src" / "abreast" / "__main__.py").exists():
            raise NotMeasured("there is no command line yet", absent=True)
        options = ["--width", str(WIDTH), "--quiet", "--store", str(scratch / "runs.db")]
        return [sys.executable, "-m", "abreast", "map", *options, "--", *load.argv]
    # With an argument as all others have: `true` looks at the locale then, which is a third of what
    # it costs.
    return [
        sys.executable,
        "-m",
        "benchmarks.runners",
        RUNNERS[label],
        str(load.n),
        str(WIDTH),
        *load.argv,
        "line",
    ]


def measure(label: str, load: Load) -> Sample:
    """Run a contender once and return its sample; raises NotMeasured."""
    SCRATCH.mkdir(exist_ok=True)
    # On the project's disk: on a /tmp in memory an fsync costs nothing.
    with tempfile.TemporaryDirectory(dir=SCRATCH) as home, tempfile.TemporaryFile() as said:
        command = command_of(label, load, Path(home))
        lines = Path(home, "lines")
        lines.write_text("".join(f"{number}\n" for number in range(load.n)), encoding="ascii")
        with lines.open("rb") as stdin:
            began = time.perf_counter()
            # As a child of its own: below another process, `timeout` for one, xargs takes a sixth
            # longer here.
            process = subprocess.Popen(
                command, stdin=stdin, stdout=said, stderr=said, cwd=ROOT, env=_environment()
            )
            late = threading.Timer(TIMEOUT, process.kill)
            late.start()
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
            late.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            said.seek(0)
            last = (
                said.read().decode(errors="replace").strip().splitlines()
                or ["ended without a word"]
            )[-1]
            raise NotMeasured(f"failed with exit code {process.returncode}: {last}", absent=False)
    return Sample(wall, usage.ru_utime + usage.ru_stime, load.n, 1, 0.0)


def play(load: Load, rounds: int) -> list[Result]:
    """Measure every contender once per round, every other time in reverse."""
    results = [Result(entry) for entry in load.work().entries]
    for number in range(rounds):
        for result in results if number % 2 == 0 else reversed(results):
            if not result.missing:
                _tell(f"{load.name} {number + 1}/{rounds} {result.entry.label}")
                try:
                    result.samples.append(measure(result.entry.label, load))
                except NotMeasured as reason:
                    result.missing, result.failed = str(reason), not reason.absent
                    result.samples.clear()
    return results


def judge(load: Load, results: Sequence[Result]) -> Iterator[Verdict]:
    """Return the verdicts of one work."""
    by_label = {result.entry.label: result for result in results if result.samples}
    limits = {XARGS: 1.8, PARALLEL: 1.0} if load.name == "true" else {PARALLEL: 1.0}
    for label, limit in limits.items():
        target = f"wall <= {limit:g} x {label}"
        ours, theirs = by_label.get(MAP), by_label.get(label)
        if ours is None or theirs is None:
            yield Verdict(load.name, target)
            continue
        by_round = [
            us.wall / them.wall for us, them in zip(ours.samples, theirs.samples, strict=True)
        ]
        ratio = median(by_round)
        yield Verdict(
            load.name,
            target,
            f"{ratio:.2f} x (rounds {min(by_round):.2f} to {max(by_round):.2f})",
            ratio <= limit,
        )


def main() -> int:
    """Play both works, print a table each and the targets, write the record.

    1 if a contender failed.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commands", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, help="rounds per work; the medians count (default 9, with --quick 2)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller works, to try the harness out"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the record instead of the tables"
    )
    args = parser.parse_args()
    if args.rounds is not None and args.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {args.rounds}")
    played: dict[str, list[Result]] = {}
    judged: list[Verdict] = []
    for load in loads(quick=args.quick):
        played[load.name] = play(load, args.rounds or (2 if args.quick else 9))
        judged += judge(load, played[load.name])
        if not args.json:
            print(tables.table(load.work(), played[load.name]), end="\n\n", flush=True)
    document = records.record(played, judged, quick=args.quick)
    path = records.write(document, ["commands"])
    print(json.dumps(document) if args.json else tables.verdicts(judged))
    _tell(f"written to benchmarks/results/{path.name}")
    return int(any(result.failed for results in played.values() for result in results))


def _installed(name: str) -> str:
    """Return where a program is; the `parallel` of moreutils is another one than GNU's."""
    path = shutil.which(name)
    said = (
        subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if path
        else ""
    )
    if path is None or "GNU" not in said:
        raise NotMeasured(f"not installed (apt-get install {name})", absent=True)
    return path


def _environment() -> dict[str, str]:
    """No PYTHON* setting of the caller's decides a number."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(ROOT / "src")}


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
