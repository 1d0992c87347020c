"""Print what a map on Ray takes beside plain Ray tasks: `python -m benchmarks.ray_tasks`.

Tasks of 50 ms, on two nodes of this machine with two CPUs each: plain functions, one on each CPU,
and coroutines, 200 at once. Each is measured in turns, after one that is not counted. It ends with
1 if a map takes more than 1.5 times as long.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from statistics import median
from typing import Any

from abreast.assembly.names import open_run
from benchmarks.ray_nodes import open_nodes

TASK_SECONDS = 0.05
CPUS = 4
AT_ONCE = 200
MOST = 1.5  # times as long


def work(item: int) -> int:
    """A plain function."""
    time.sleep(TASK_SECONDS)
    return item


async def work_later(item: int) -> int:
    """A coroutine."""
    await asyncio.sleep(TASK_SECONDS)
    return item


async def _map(fn: Callable[[int], Any], count: int, width: int) -> None:
    async with open_run("ray-tasks", executor="ray") as run:
        found = [outcome.value async for outcome in run.map(fn, range(count), width=width)]
    if found != list(range(count)):
        raise RuntimeError("not what the plain loop returns")


def _plain_tasks(count: int) -> None:
    ray: Any = import_module("ray")
    task = ray.remote(num_cpus=1, max_retries=0)(work)
    ray.get([task.remote(item) for item in range(count)])


class Actor:
    """Calls coroutines, as a plain actor of Ray does."""

    async def call(self, item: int) -> int:
        """One of them."""
        return await work_later(item)


@cache
def _actor() -> Any:  # noqa: ANN401 - a handle of Ray's
    return import_module("ray").remote(num_cpus=0, max_concurrency=AT_ONCE)(Actor).remote()


def _plain_actor(count: int) -> None:
    ray: Any = import_module("ray")
    actor = _actor()
    ray.get([actor.call.remote(item) for item in range(count)])


def measure(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each way."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            found[name].append(time.perf_counter() - began)
    return {name: median(seconds[1:]) for name, seconds in found.items()}


def main() -> int:
    """Measure, and print the two comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=200)
    given = parser.parse_args()
    count, many = given.tasks, 10 * given.tasks
    worst = 0.0
    with open_nodes(cpus=CPUS // 2):
        comparisons: dict[str, dict[str, Callable[[], object]]] = {
            f"{count} functions, {CPUS} at once": {
                "Ray": lambda: _plain_tasks(count),
                "abreast": lambda: asyncio.run(_map(work, count, CPUS)),
            },
            f"{many} coroutines, {AT_ONCE} at once": {
                "Ray": lambda: _plain_actor(many),
                "abreast": lambda: asyncio.run(_map(work_later, many, AT_ONCE)),
            },
        }
        for name, ways in comparisons.items():
            seconds = measure(ways, given.rounds)
            ratio = seconds["abreast"] / seconds["Ray"]
            worst = max(worst, ratio)
            sys.stdout.write(
                f"{name}: Ray {seconds['Ray']:.2f} s, abreast {seconds['abreast']:.2f} s, "
                f"{ratio:.2f} times as long\n"
            )
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
