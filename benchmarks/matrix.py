"""Measure a study of 6,090 cells: `python -m benchmarks.matrix [--cells 6090] [--latency 0.02] [--width 16]`.

Five lanes, each a server of its own in a process of its own; 7 strategies, 29 inputs, 6 repeats. The bound is what no
scheduler can beat: the longest lane's cells, times their latency, over its width, and one latency more. Then the same
with one lane hung: the other four must end as if it were not there.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from abreast.testing.storm import start_process

LANES = ("a", "b", "c", "d", "e")
STRATEGIES, INPUTS, REPEATS = 7, 29, 6


def write_study(folder: Path, urls: dict[str, str], repeats: int) -> int:
    """Write the study and its lanes; how many cells it has."""
    lanes = "".join(f'[lanes.{name}]\nbase_url = "{url}/v1"\n\n' for name, url in urls.items())
    (folder / "abreast.toml").write_text(lanes, "utf-8")
    strategies = {f"s{number}": {"prompt": f"{number}: {{{{ input.text }}}}"} for number in range(STRATEGIES)}
    study = {"matrix": {
        "models": [f"{name}/one" for name in urls], "strategies": strategies, "repeats": repeats,
        "inputs": [{"id": f"i{number}", "text": f"text {number}", "truth": "x"} for number in range(INPUTS)],
        "scores": ["contains"],
    }}  # fmt: skip
    (folder / "study.yaml").write_text(json.dumps(study), "utf-8")
    return len(urls) * STRATEGIES * INPUTS * repeats


def main() -> int:
    """Play it; 1 if cells are missing or a bound is passed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix", description=__doc__)
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        storms = {name: stack.enter_context(start_process(latency=args.latency)) for name in LANES}
        folder = Path(home)
        cells = write_study(folder, {name: storm.url for name, storm in storms.items()}, args.repeats)
        bound = cells / len(LANES) * args.latency / args.width + args.latency
        wall, cpu, said = _run(folder, args.width)
        peaks = [storm.stats().peak_in_flight for storm in storms.values()]
        print(f"{cells:,} cells, {len(LANES)} lanes, {args.latency:g} s each, width {args.width}: {said}")
        each = f"CPU {cpu / cells * 1e6:,.0f} us a cell"
        print(f"makespan {wall:.2f} s, bound {bound:.2f} s: {wall / bound:.3f} x; {each}")
        print(f"peak in flight by the servers' count: {peaks}")
        again, _, _ = _run(folder, args.width)
        asked = sum(storm.stats().arrived for storm in storms.values())
        print(f"run once more: {asked - cells} further calls, {again:.2f} s")
        return int(asked != cells or max(peaks) > args.width or wall / bound > 1.05)


def _run(folder: Path, width: int) -> tuple[float, float, str]:
    """The seconds from start to end of a process, its CPU seconds, and what it said."""
    began, before = time.perf_counter(), os.times()
    words = ["matrix", "run", "study.yaml", "--lane-width", str(width), "--json", "-q", "--no-report"]
    command = [sys.executable, "-m", "abreast", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    wall, after = time.perf_counter() - began, os.times()
    if ended.returncode not in (0, 1):
        raise SystemExit(ended.stderr)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, cpu, f"{json.loads(ended.stdout)['done']:,} done"


if __name__ == "__main__":
    sys.exit(main())
