"""Measure studies.

`python -m benchmarks.matrix [bound hung service same] [--repeats 6] [--latency 0.2] [--width 8]`.

Five lanes, each a server of its own in a process of its own; 7 strategies and 29 inputs: 6,090
cells at 6 repeats.

- bound: the makespan beside what no scheduler can beat, the longest lane's cells times their
  latency over its width and one latency more; and beside that of bare aiohttp. Servers refuse
  calls beyond the width. Then the same command once more.
- hung: one lane never answers. When the other four end, by their servers' logs; then Ctrl-C, and
  how long that takes.
- service: `service_s` of each cell beside its server's own log, at widths 1, 4 and 64, with 429s.
- same: rows at widths 1, 4 and 64 while servers fail, cut connections and send 429s.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from abreast.testing.storm import StormProcess, start_process

LANES: Final = ("a", "b", "c", "d", "e")
STRATEGIES, INPUTS, REPEATS = 7, 29, 6
WIDTHS: Final = (1, 4, 64)
CLOSE: Final = 0.05
TIMED: Final = ("service_s", "queue_s", "hold_s", "backoff_s", "wall_s", "in_flight")
FAULTS: Final = {"500": 0.02, "reset": 0.01, "malformed": 0.005, "429": 0.02}


def main() -> int:
    """Play the parts that are named, or all; how many of them missed what they should show."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.matrix",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="which of bound, hung, service and same; else all"
    )
    parser.add_argument("--latency", type=float, default=0.2)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    args = parser.parse_args()
    parts = {"bound": bound, "hung": hung, "service": service, "same": same}
    if unknown := [name for name in args.parts if name not in parts]:
        parser.error(f"no such part: {', '.join(unknown)} (there are {', '.join(parts)})")
    return sum(not parts[name](args) for name in args.parts or parts)


# --- the parts ------------------------------------------------------------------------------------


def bound(args: argparse.Namespace) -> bool:
    """The makespan of a whole study."""
    with lanes(latency=args.latency, concurrency=args.width) as (folder, storms):
        cells = write_study(folder, storms, args.repeats)
        ideal = cells / len(LANES) * args.latency / args.width + args.latency
        print(
            f"bound: {cells:,} cells, {len(LANES)} lanes, {args.latency:g} s each, "
            f"width {args.width}: {ideal:.2f} s"
        )
        plan = {
            "urls": [storm.url for storm in storms.values()],
            "width": args.width,
            "bodies": _bodies(args.repeats),
        }
        (folder / "plan.json").write_text(json.dumps(plan), "utf-8")
        raw, raw_cpu, _ = timed(
            [sys.executable, "-m", "benchmarks.matrix_raw", "plan.json"], folder
        )
        before = sum(storm.stats().arrived for storm in storms.values())
        wall, cpu, said = timed(command(args.width, "--no-resume"), folder)
        stats = [storm.stats() for storm in storms.values()]
        served = sum(one.cpu_seconds for one in stats) / (sum(one.arrived for one in stats) or 1)
        asked, refused = (
            sum(one.arrived for one in stats) - before,
            sum(one.rejected for one in stats),
        )
        print(
            f"  bare aiohttp {raw:.2f} s: {raw / ideal:.3f} x the bound; "
            f"CPU {raw_cpu / cells * 1e6:,.0f} us a call"
        )
        print(
            f"  abreast      {wall:.2f} s: {wall / ideal:.3f} x the bound; "
            f"CPU {cpu / cells * 1e6:,.0f} us a cell"
        )
        print(
            f"  servers: CPU {served * 1e6:,.0f} us a call; "
            f"peaks in flight {[one.peak_in_flight for one in stats]}"
        )
        again, _, _ = timed(command(args.width), folder)
        more = sum(storm.stats().arrived for storm in storms.values()) - before - asked
        print(
            f"  {json.loads(said)['done']:,} done, {asked:,} calls, {refused} refused; "
            f"once more: {more} calls, {again:.2f} s"
        )
        return asked == cells and not refused and not more and wall / ideal <= 1 + CLOSE


def hung(args: argparse.Namespace) -> bool:
    """One lane hangs, the others don't; then Ctrl-C."""
    repeats = max(1, args.repeats // 3)
    with lanes(latency=args.latency, concurrency=args.width) as (folder, storms):
        cells = write_study(folder, storms, repeats) // len(LANES)
        storms["c"].change(latency=3600.0)
        ideal = cells * args.latency / args.width + args.latency
        words, place = command(args.width), environment()
        with subprocess.Popen(
            words, cwd=folder, env=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            others = [storm for name, storm in storms.items() if name != "c"]
            while process.poll() is None and any(storm.stats().ok < cells for storm in others):
                time.sleep(0.05)
            pressed = time.perf_counter()
            process.send_signal(signal.SIGINT)
            process.communicate()
            stopped = time.perf_counter() - pressed
        logs = [storm.log() for storm in others]
        spans = [
            max(one.t_end or 0 for one in log) - min(one.t_arrive for one in log) for log in logs
        ]
        held = storms["c"].stats()
        worst = max(spans) / ideal
        print(
            f"hung: {cells} cells a lane, one lane hung: "
            f"the others took {_listed(spans)} s of {ideal:.2f}: {worst:.3f} x"
        )
        print(
            f"  the hung lane had {held.arrived} calls; "
            f"Ctrl-C: exit {process.returncode} after {stopped:.2f} s"
        )
        return (
            worst <= 1 + CLOSE
            and held.arrived == args.width
            and process.returncode == 130
            and stopped < 1
        )


def service(_: argparse.Namespace) -> bool:
    """Service times as recorded, and as the server has them."""
    good = True
    for width, cells in zip(WIDTHS, (16, 32, 192), strict=True):
        with lanes("a", latency=1.0, noise=0.3, faults={"429": 0.1}, minute=30, seed=width) as (
            folder,
            storms,
        ):
            # Each cell is a model of its own: so the server's log says which request was whose.
            write_study(
                folder,
                storms,
                1,
                models=[f"a/m{number}" for number in range(cells)],
                strategies=1,
                inputs=1,
            )
            timed(command(width), folder)
            served = {
                one.model: one.service or 0.0 for one in storms["a"].log() if one.outcome == "ok"
            }
            turned = storms["a"].stats().rejected
            rows = export(folder)
        ratios = [row["service_s"] / served[row["model"].partition("/")[2]] for row in rows]
        near = sum(abs(ratio - 1) <= CLOSE for ratio in ratios) / len(ratios)
        parts = max(abs(sum(row[part] for part in TIMED[:4]) - row["wall_s"]) for row in rows)
        waited = median(row["wall_s"] - row["service_s"] for row in rows)
        print(
            f"service: width {width}, {cells} cells, {turned} x 429: "
            f"median {median(ratios):.4f} x the server's, "
            f"{near:.1%} within 5%; waited {waited:.2f} s; parts off by {parts:.0e} s"
        )
        good = good and abs(median(ratios) - 1) <= CLOSE and len(rows) == cells and parts < 1e-6
    return good


def same(args: argparse.Namespace) -> bool:
    """Rows at several widths, while servers break."""
    seen = []
    for width in WIDTHS:
        with lanes(latency=0.002, faults=FAULTS, minute=3, seed=1) as (folder, storms):
            cells = write_study(folder, storms, args.repeats)
            wall, _, said = timed(command(width, "--seed", "7"), folder)
            calls = sum(storm.stats().arrived for storm in storms.values())
            peak = max(storm.stats().peak_in_flight for storm in storms.values())
            rows = export(folder)
        found = json.loads(said)
        print(
            f"same: width {width}: {len(rows):,} rows of {cells:,} cells, "
            f"{found['failed']} failed, {calls:,} calls, "
            f"at most {peak} at once in a lane, {wall:.1f} s"
        )
        seen.append({row["cell"]: lasting(row) for row in rows})
        if len(rows) != cells or peak > width:
            return False
    alike = sum(seen[0][cell] == seen[1][cell] == seen[2][cell] for cell in seen[0])
    print(
        f"  {alike:,} of {len(seen[0]):,} rows are the same at widths 1, 4 and 64: "
        "outputs, tokens, cost and scores"
    )
    return alike == len(seen[0])


# --- studies, servers, processes ------------------------------------------------------------------


@contextmanager
def lanes(
    *names: str, seed: int = 0, **settings: Any
) -> Iterator[tuple[Path, dict[str, StormProcess]]]:
    """A folder, and a server for each lane."""
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        yield (
            Path(home),
            {
                name: stack.enter_context(start_process(seed=seed, **settings))
                for name in names or LANES
            },
        )


def write_study(
    folder: Path,
    storms: Mapping[str, StormProcess],
    repeats: int,
    *,
    models: Sequence[str] = (),
    strategies: int = STRATEGIES,
    inputs: int = INPUTS,
) -> int:
    """Write the study and its lanes; how many cells it has."""
    lane = '[lanes.{}]\nbase_url = "{}/v1"\nprice = {{input = 1.0, output = 2.0}}\n\n'
    (folder / "abreast.toml").write_text(
        "".join(lane.format(name, one.url) for name, one in storms.items()), "utf-8"
    )
    named = list(models) or [f"{name}/one" for name in storms]
    study = {
        "matrix": {
            "models": named,
            "repeats": repeats,
            "scores": ["contains"],
            "strategies": {
                f"s{number}": {"prompt": f"{number}: {{{{ input.text }}}}"}
                for number in range(strategies)
            },
            "inputs": [
                {"id": f"i{number}", "text": f"text {number}", "truth": "x"}
                for number in range(inputs)
            ],
        }
    }
    (folder / "study.yaml").write_text(json.dumps(study), "utf-8")
    return len(named) * strategies * inputs * repeats


def _bodies(repeats: int) -> list[dict[str, object]]:
    """What a lane of the study is asked, as bare requests."""
    return [
        {
            "model": "one",
            "seed": repeat,
            "messages": [{"role": "user", "content": f"{how}: text {which}"}],
        }
        for repeat in range(repeats)
        for which in range(INPUTS)
        for how in range(STRATEGIES)
    ]


def command(width: int, *more: str) -> list[str]:
    """How a study is run."""
    words = [
        "matrix",
        "run",
        "study.yaml",
        "--lane-width",
        str(width),
        "--json",
        "-q",
        "--no-report",
    ]
    return [sys.executable, "-m", "abreast", *words, *more]


def environment() -> dict[str, str]:
    """Ours, and where abreast is."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])}


def timed(words: Sequence[str], folder: Path) -> tuple[float, float, str]:
    """The seconds from start to end of a process, its CPU seconds, and what it said."""
    began, before = time.perf_counter(), os.times()
    ended = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env=environment()
    )
    wall, after = time.perf_counter() - began, os.times()
    if ended.returncode not in (0, 1) or (ended.returncode and not ended.stdout):
        raise SystemExit(ended.stderr)
    cpu = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    return wall, cpu, ended.stdout


def export(folder: Path) -> list[dict[str, Any]]:
    """The rows of the study."""
    _, _, said = timed([sys.executable, "-m", "abreast", "matrix", "export", "study"], folder)
    return [json.loads(line) for line in said.splitlines()]


def lasting(row: Mapping[str, Any]) -> dict[str, Any]:
    """What does not depend on timing."""
    kept = {name: value for name, value in row.items() if name not in TIMED}
    return {**kept, "steps": [{**step, "service_s": 0} for step in row["steps"]]}


def _listed(seconds: Sequence[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in seconds)


if __name__ == "__main__":
    sys.exit(main())
