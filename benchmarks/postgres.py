"""Print what a durable item costs on PostgreSQL, beside DBOS on the same server.

`python -m benchmarks.postgres [--items 1000 10000] [--rounds 3] [--width 50] [--drivers 4]`.

Each item returns 400 bytes at once and is on the server's disk before it is reported. Contenders
take turns, each in a process of its own; the least of the rounds counts. CPU is that of the
contender's process, not of the server. DBOS comes from its own environment
(`python -m benchmarks.peers dbos`).

With --drivers only abreast plays: so many drivers at once on the one server, each with its own run,
and how many items a second they record together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import psycopg

from benchmarks.peers import is_installed, python_of
from scripts.postgres import open_server

AHEAD = 8.0  # times less CPU and wall time than DBOS
TABLE_SIZES = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'abreast'::regnamespace
"""
OUTCOMES = "SELECT count(*) FROM abreast.events WHERE kind = 'item-settled'"


class Way(NamedTuple):
    """A way to do it: whose, which module plays which work, and with which interpreter."""

    name: str
    module: str
    work: str
    python: str
    database: str


class Cost(NamedTuple):
    """Microseconds per item."""

    cpu: float
    wall: float

    def __str__(self) -> str:
        """Both, rounded."""
        return f"{self.cpu:8,.0f} us CPU {self.wall:8,.0f} us wall"


def main() -> int:
    """Print a line for each number of items and way; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--drivers", type=int, nargs="+", default=[])
    given = parser.parse_args()
    ours = Way("abreast", "abreast_map", "C-postgres", sys.executable, "runs")
    if given.drivers:
        return _together(ours, given.drivers, max(given.items), given.width)
    ways = [ours]
    if is_installed("dbos"):
        python = str(python_of("dbos"))
        ways += [
            Way("DBOS steps", "dbos_sqlite", "C", python, "dbos"),
            Way("DBOS queue", "dbos_sqlite", "C-queue", python, "dbos"),
        ]
    else:
        print("DBOS is not installed: python -m benchmarks.peers dbos")
    good = True
    with open_server() as server:
        for items in given.items:
            costs: dict[str, list[Cost]] = {way.name: [] for way in ways}
            for _ in range(given.rounds):
                for way in ways:
                    costs[way.name].append(_play(way, server.url, items, given.width))
            best = {name: Cost(*map(min, zip(*each, strict=True))) for name, each in costs.items()}
            for name, cost in best.items():
                ahead = [theirs / own for theirs, own in zip(cost, best[ours.name], strict=True)]
                beside = "" if name == ours.name else f"  {ahead[0]:.1f} x, {ahead[1]:.1f} x"
                print(f"{items:6,} items  {name:11} {cost}{beside}", flush=True)
                good = good and (name == ours.name or min(ahead) >= AHEAD)
    print(f"at least {AHEAD:g} x ahead: {'yes' if good else 'MISSED'}")
    return 0 if good else 1


def _together(way: Way, counts: Sequence[int], items: int, width: int) -> int:
    """Print how many items a second some drivers record together."""
    with open_server() as server, ThreadPoolExecutor(max(counts)) as threads:
        for count in counts:
            began = [threads.submit(_play, way, server.url, items, width) for _ in range(count)]
            walls = [each.result().wall * items / 1e6 for each in began]
            rate = sum(items / wall for wall in walls)
            print(f"{count} drivers, {items:,} items each: {rate:8,.0f} items/s", flush=True)
        with psycopg.connect(server.url) as db:
            size = db.execute(TABLE_SIZES).fetchone()
            recorded = db.execute(OUTCOMES).fetchone()
        if size and recorded:
            print(f"{size[0] / recorded[0]:,.0f} bytes of tables and indexes per item")
    return 0


def _play(way: Way, url: str, items: int, width: int) -> Cost:
    address = url.rpartition("/")[0] + "/" + way.database
    done = subprocess.run(
        [way.python, "-m", f"benchmarks.contenders.{way.module}", way.work, str(items), str(width)],
        env={**os.environ, "BENCH_POSTGRES": address},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way.name} failed: {done.stderr[-2000:]}")
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    return Cost(facts["cpu"] / items * 1e6, facts["wall"] / items * 1e6)


if __name__ == "__main__":
    sys.exit(main())
