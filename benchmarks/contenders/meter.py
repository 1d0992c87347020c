"""What every contender shares.

The load it is given, the stopwatch around its work, and the line it prints.

A contender is a plain function `play(load, lap)` that opens what it needs, does the load inside
`with lap:` and returns its results. It runs in a fresh process as `python -m
benchmarks.contenders.NAME WORK N WIDTH [REPEAT]`.
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Self

NAP = 0.050
WARM_UP_ITEMS = {"D": 20}
WARM_UP = 10
# About 400 bytes as JSON: the size of a short model reply.
FILLER = "lorem ipsum dolor sit amet " * 14


@dataclass(frozen=True, slots=True)
class Load:
    """What to do: `n` items of a work, at most `width` at once; files go under `scratch`."""

    work: str
    n: int
    width: int
    scratch: Path


@dataclass(slots=True)
class Lap:
    """A stopwatch for wall and CPU time (self, threads, waited-for children).

    `with lap:` adds to it.
    """

    wall: float = 0.0
    cpu: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Start the watch.

        The CPU reading is taken last, so that reading the clocks isn't counted.
        """
        self.wall -= time.perf_counter()
        self.cpu -= cpu_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the watch."""
        self.cpu += cpu_seconds()
        self.wall += time.perf_counter()


Item = Callable[[int], Coroutine[object, object, object]]
Play = Callable[[Load, Lap], Sequence[object]]


def on_loop(play: Callable[[Load, Lap], Coroutine[object, object, Sequence[object]]]) -> Play:
    """Make a play of an async one.

    Each runs on a fresh event loop, made and closed outside the lap.
    """

    def played(load: Load, lap: Lap) -> Sequence[object]:
        return asyncio.run(play(load, lap))

    return played


def cpu_seconds() -> float:
    """Return the CPU time this process and its ended children have used."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def payload(index: int) -> dict[str, object]:
    """Return the result of item `index` in the durable work."""
    return {"index": index, "text": FILLER}


def large(index: int) -> dict[str, object]:
    """Return the result of item `index` in the fan-out: 2 KB as JSON."""
    return {"index": index, "text": FILLER * 5}


def prompt(index: int) -> str:
    """Return question `index` of the chat work, which is its answer too: the server echoes."""
    return f"{index}: {FILLER}"


async def no_op(index: int) -> object:
    """Do nothing, but let the others go first once.

    The item of work A, which so fills the width.
    """
    await asyncio.sleep(0)
    return index


async def instant(index: int) -> object:
    """Do nothing at all: the item of work A0, of which never two are under way."""
    return index


async def nap(index: int) -> object:
    """Wait 50 ms: the item of work B."""
    await asyncio.sleep(NAP)
    return index


async def make(index: int) -> object:
    """Return a 400-byte result at once: the item of work C."""
    return payload(index)


async def make_large(index: int) -> object:
    """Return a 2 KB result at once: the item of work W."""
    return large(index)


ITEMS: Mapping[str, Item] = {"A": no_op, "A0": instant, "B": nap, "C": make, "W": make_large}


EXPECTED: Mapping[str, Callable[[int], object]] = {"C": payload, "D": prompt, "W": large}
CHECKED = {*ITEMS, *EXPECTED}


def expected(load: Load) -> list[object]:
    """Return what a plain loop would have returned."""
    result = EXPECTED.get(load.work, int)
    return [result(index) for index in range(load.n)]


def run(plays: Mapping[str, Play], *, package: str | None = None, ordered: bool = True) -> None:
    """Be a contender's main program: warm up, measure, check the results, print one JSON line."""
    args = _arguments(plays)
    play = plays[args.work]
    lap, total = Lap(), Lap()
    with tempfile.TemporaryDirectory() as home:
        for number in range(args.repeat + 1):
            # First a few items unmeasured: what is imported or compiled at a first call is
            # start-up.
            warm = number == 0
            # "C-queue" is another way to play C.
            work = args.work.partition("-")[0]
            n = min(args.n, WARM_UP_ITEMS.get(work, WARM_UP)) if warm else args.n
            load = Load(work, n, args.width, Path(home, str(number)))
            load.scratch.mkdir()
            with Lap() if warm else total:
                results = play(load, Lap() if warm else lap)
            if load.work in CHECKED:
                _check(load, results, ordered=ordered)
    _print_line(lap, total, args, package)


def _arguments(plays: Mapping[str, Play]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=sorted(plays))
    parser.add_argument("n", type=int)
    parser.add_argument("width", type=int)
    parser.add_argument("repeat", type=int, nargs="?", default=1)
    return parser.parse_args()


def _check(load: Load, results: Sequence[object], *, ordered: bool) -> None:
    got = list(results) if ordered else sorted(results, key=repr)
    want = expected(load) if ordered else sorted(expected(load), key=repr)
    if got != want:
        raise SystemExit(f"work {load.work}: {len(got)} results, not the {load.n} of a plain loop")


def _print_line(lap: Lap, total: Lap, args: argparse.Namespace, package: str | None) -> None:
    line = {
        "wall": lap.wall,
        "cpu": lap.cpu,
        "items": args.n * args.repeat,
        "maps": args.repeat,
        # Opening and closing: a store, a graph, a service. Shown beside the cost per item, never
        # inside it.
        "around": (total.cpu - lap.cpu) / args.repeat,
        "version": _version_of(package),
        **lap.extra,
    }
    sys.stdout.write(json.dumps(line) + "\n")


def _version_of(package: str | None) -> str | None:
    try:
        return metadata.version(package) if package else None
    except metadata.PackageNotFoundError:
        return "this tree"
