"""Load: a million items, 2,000 commands at once, 1,000 calls in flight, 200 readers.

    python -m benchmarks.load [million] [commands] [calls] [readers] [--items N] [--minutes 10]

Each line is a figure and its bound: a factor of a smaller load on the same machine, or a count. It
ends with 1 if one is missed. Seconds are those of the CPU: other work on the machine adds none. The
items of the million are those of a smaller run, again and again, as if its driver had been killed
after the last one; what is driven and resumed is real.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import abreast
from abreast.models.lanes import LaneSettings
from abreast.models.price import FlatPrice
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from abreast.testing.storm import start_process
from abreast.web.app import Server, Site
from benchmarks.large_run import repeat_run

DRIVEN: Final = 10_000  # items
WIDTH: Final = 2_000  # commands at once
CALLS: Final = 1_000  # in flight
READERS: Final = 200
_LATENCY: Final = 4.0  # seconds of a reply
_READING: Final = 30.0  # seconds that readers and writer work beside each other
_PAUSE: Final = 3.0  # seconds between two reads of one reader
_MIB: Final = 1024  # KiB, as resource usage is told in


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure, and the bound that it must not pass."""

    what: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether it is within its bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "ok  " if self.holds else "FAIL"
        return f"{verdict}  {self.what:62}{self.value:>12.2f} {sign} {self.bound:g}"


# --- a million items


async def _work(item: int) -> int:
    return item


async def drive(store: str, name: str, items: int, resume: str) -> dict[str, float]:
    """Drive a map of so many items, or resume it; CPU seconds, and the most MiB of this process."""
    began, done = time.process_time(), 0
    async with abreast.open_run(name, store=store, seed=1, resume=resume) as run:  # type: ignore[arg-type]
        async for _ in run.map(_work, islice(cycle(range(DRIVEN)), items), width=8, name="work"):
            done += 1
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MIB
    return {"seconds": time.process_time() - began, "memory": memory, "done": done}


def _in_process(*arguments: str) -> dict[str, float]:
    """Drive in a process of its own, so that its memory is its own."""
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", "--drive", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(said.stdout)
    return found


def measure_million(folder: Path, items: int) -> list[Figure]:
    """Drive some, make many of them, and read and resume these."""
    store = str(folder / "runs.db")
    small = _in_process(store, "small", str(DRIVEN), "never")
    large = _in_process(store, "large", str(10 * DRIVEN), "never")
    before = os.path.getsize(store)  # noqa: PTH202 - a figure
    began = time.monotonic()
    run = repeat_run(store, "small-1", "million", items // DRIVEN, ended=False)
    print(f"      made {items:,} items in {time.monotonic() - began:.0f} s", flush=True)
    size = (os.path.getsize(store) - before) / items  # noqa: PTH202 - a figure
    few, many = (_time_reads(folder, store, one) for one in ("small-1", run))
    resumed = _in_process(store, "million", str(items), "must")
    per_item = large["seconds"] / large["done"]
    return [
        Figure("ten times the items: times the seconds", large["seconds"] / small["seconds"], 15),
        Figure("ten times the items: times the memory", large["memory"] / small["memory"], 1.3),
        Figure("bytes of the store per item", size, 1_500),
        Figure("resumed: items", resumed["done"], items, at_least=True),
        Figure(
            "resumed: seconds (half of driving them)", resumed["seconds"], 0.5 * items * per_item
        ),
        Figure("resumed: times the memory of few", resumed["memory"] / small["memory"], 2),
        *(
            Figure(f"{what}: seconds (of {DRIVEN:,} items {few[what]:.2f})", many[what], bound)
            for what, bound in (
                ("abreast runs", 5 * few["abreast runs"]),
                ("abreast show", 60 * few["abreast show"]),
                ("page: first read", 100 * few["page: first read"] + 10),
                ("page: second read", 20 * few["page: second read"] + 1),
            )
        ),
    ]


def _time_reads(folder: Path, store: str, run: str) -> dict[str, float]:
    found = {}
    for what, arguments in {"abreast runs": ("runs",), "abreast show": ("show", run)}.items():
        began = _children_seconds()
        _abreast(folder, *arguments, store=store)
        found[what] = _children_seconds() - began
    with closing(SqliteStore(Path(store))) as opened:
        found |= _time_page(opened, run)
    return found


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _abreast(folder: Path, *arguments: str, store: str) -> str:
    environment = {**os.environ, "ABREAST_STORE": store, "ABREAST_STATE": str(folder)}
    done = subprocess.run(
        [sys.executable, "-m", "abreast", *arguments],
        env=environment,
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def _time_page(store: SqliteStore, run: str) -> dict[str, float]:
    """Seconds of all the page reads of a run, for the first time and once more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port, token = listening.getsockname()[1], "token"
        site = Site(store, token, {f"127.0.0.1:{port}"})
        server = Server(site)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            found = {}
            for what in ("page: first read", "page: second read"):
                began = time.process_time()
                for name in ("", "/items", "/lanes"):
                    path = f"{site.base}run/{run}{name}.json?token={token}"
                    with urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                        answer.read()
                found[what] = time.process_time() - began
            return found
        finally:
            server.should_exit = True
            thread.join()


# --- commands


def measure_commands(folder: Path) -> list[Figure]:
    """Start as many commands at once as the width, each of which waits until all have begun."""
    log, gate = folder / "log", folder / "gate"
    log.touch()
    os.mkfifo(gate)
    (folder / "items").write_text("".join(f"{number}\n" for number in range(WIDTH)))
    wait = f'echo "$1" >> {log}; cat {gate}'
    began = time.monotonic()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "abreast", "map", "--input", "items", "-q", "-w", str(WIDTH)),
            *("--", "sh", "-c", wait, "sh", "{}"),
        ],
        env={**os.environ, "ABREAST_STORE": str(folder / "commands.db")},
        cwd=folder,
    )
    while process.poll() is None and len(log.read_bytes().splitlines()) < WIDTH:
        time.sleep(0.2)
    begun, reached = time.monotonic() - began, len(log.read_bytes().splitlines())
    memory = 0
    while process.poll() is None:  # those that open the gate later wait for the next writer
        memory = max(memory, _peak_kib(process.pid))
        with suppress(OSError):  # nothing reads it just now
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        time.sleep(0.05)
    print(f"      {reached:,} commands have begun after {begun:.1f} s", flush=True)
    return [
        Figure("commands at once", reached, WIDTH, at_least=True),
        Figure("exit code of the map", process.wait(), 0),
        Figure("KiB of the driver per command", memory / WIDTH, 100),
    ]


def _peak_kib(pid: int) -> int:
    """The most memory that a process has had; its usage as a child has this process's own, too."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


# --- calls


def measure_calls(folder: Path, minutes: float) -> list[Figure]:
    """Keep calls in flight for some minutes."""
    with start_process(seed=1, latency=_LATENCY, markers=False) as storm:
        url, store = f"{storm.url}/v1", str(folder / "calls.db")
        few = asyncio.run(_call(url, store, max(10.0, 6 * minutes), CALLS // 10))
        since = len(storm.log())
        found = asyncio.run(_call(url, store, 60 * minutes, CALLS))
        peak = max((entry.in_flight for entry in storm.log()), default=0)
        billed = sum(entry.outcome == "ok" for entry in storm.log(since))
    return [
        Figure("calls in flight", peak, 0.95 * CALLS, at_least=True),
        Figure("calls that failed", found["failed"], 0),
        Figure("calls answered that are not recorded", billed - found["done"], 0),
        Figure("CPU of a call, times that with a tenth in flight", found["cpu"] / few["cpu"], 2),
        Figure("times the memory after a quarter of the time", found["growth"], 1.3),
    ]


async def _call(url: str, store: str, seconds: float, width: int) -> dict[str, float]:
    price = FlatPrice(input=1.0, output=2.0)
    lane = LaneSettings("load", base_url=url, width=width, rpm=10**8, tpm=10**11, price=price)
    began, cpu = time.monotonic(), time.process_time()
    counts = {"done": 0, "failed": 0}
    quarter = 0.0

    async def prompts() -> AsyncIterator[str]:
        number = 0
        while time.monotonic() - began < seconds:
            yield f"Say {number}"
            number += 1

    async with abreast.open_model("load/m", lanes={"load": lane}) as model:

        async def ask(text: str) -> str:
            return (await model.ask(text)).text

        async with abreast.open_run("calls", store=store) as run:
            async for outcome in run.map(ask, prompts(), width=width, order="completion"):
                counts["done" if outcome.ok else "failed"] += 1
                if not quarter and time.monotonic() - began > seconds / 4:
                    quarter = _resident()
    used = (time.process_time() - cpu) / max(1, counts["done"])
    return {**counts, "cpu": used, "growth": _resident() / (quarter or _resident())}


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


# --- readers


def measure_readers(folder: Path) -> list[Figure]:
    """A writer alone, and beside many readers, each a process that reads the run as it grows."""
    store = folder / "readers.db"
    alone = _write(folder / "alone.db", "alone", folder)
    (folder / "writing").touch()
    for _ in range(READERS):
        if not os.fork():
            _be_reader(store, folder)
    beside = _write(store, "beside", folder)
    ends = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(READERS)]
    reads = len((folder / "reads").read_bytes())
    print(f"      {alone:.0f} items/s alone, {beside:.0f} beside {READERS} readers", flush=True)
    return [
        Figure("readers that failed", sum(code != 0 for code in ends), 0),
        Figure("reads", reads, 3 * READERS, at_least=True),
        Figure(
            "items per second, of those alone",
            beside / alone,
            0.1,
            at_least=True,
        ),
    ]


def _write(store: Path, name: str, folder: Path) -> float:
    """Items per second of a map that is driven for some seconds, in a process of its own."""
    (folder / "writing").touch()
    words = (str(store), name, str(_READING))
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.load", "--write", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    (folder / "writing").unlink()
    return float(said.stdout)


async def write_for(store: str, name: str, seconds: float) -> float:
    """Items per second of a map that is driven for so long."""
    began, done = time.monotonic(), 0

    async def items() -> AsyncIterator[int]:
        while time.monotonic() - began < seconds:
            yield done

    async with abreast.open_run(name, store=store) as run:
        async for _ in run.map(_work, items(), width=8):
            done += 1
    return done / (time.monotonic() - began)


def _be_reader(store: Path, folder: Path) -> None:
    """Read the newest run again and again while it is written; never returns."""
    code = 1
    try:
        with closing(SqliteStore(store)) as opened, (folder / "reads").open("ab") as reads:
            while (folder / "writing").exists():
                for row in opened.runs(limit=1):  # none before the writer has begun
                    sum(1 for _ in islice(each_event(opened, row.id), 200))
                    os.write(reads.fileno(), b".")
                time.sleep(_PAUSE)
        code = 0
    finally:
        os._exit(code)


PARTS: Final = ("million", "commands", "calls", "readers")


def main() -> int:
    """Measure the parts that are named, or all; 1 if a bound is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--drive", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        store, name, items, resume = given.drive
        print(json.dumps(asyncio.run(drive(store, name, int(items), resume))))
        return 0
    if given.write:
        store, name, seconds = given.write
        print(asyncio.run(write_for(store, name, float(seconds))))
        return 0
    return _measure(given.parts or PARTS, given.items, given.minutes)


def _measure(parts: Sequence[str], items: int, minutes: float) -> int:
    measures: Mapping[str, Callable[[Path], list[Figure]]] = {
        "million": lambda folder: measure_million(folder, items),
        "commands": measure_commands,
        "calls": lambda folder: measure_calls(folder, minutes),
        "readers": measure_readers,
    }
    missed = 0
    for part in parts:
        folder = Path(tempfile.mkdtemp(prefix="abreast-load-"))
        print(f"{part}", flush=True)
        try:
            for figure in measures[part](folder):
                print(f"  {figure}", flush=True)
                missed += not figure.holds
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
