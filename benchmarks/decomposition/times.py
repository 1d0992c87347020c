"""Measure how long it takes to divide files whose imports are known, without reading any.

1,000 and 10,000 files: mixed directories, and the same number in one directory, with and without
imports. The target is 2 s of CPU for 10,000 mixed files and 1 s for 10,000 alike ones.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.decompose.score import score
from abreast.jobs.plan.spec import Options

NAMES = ("api", "cli", "core", "db", "jobs", "util", "web")
MIXED, ALIKE = 2.0, 1.0


def mixed(count: int, drawn: random.Random) -> list[str]:
    """Files of directories of one to five levels, 1 to 39 in each."""
    found: list[str] = []
    while len(found) < count:
        folder = "/".join(
            f"{drawn.choice(NAMES)}{drawn.randrange(4)}" for _ in range(drawn.randint(1, 5))
        )
        found += [f"{folder}/m{len(found) + number}.py" for number in range(drawn.randint(1, 39))]
    return sorted(found[:count])


def imports_of(paths: list[str], drawn: random.Random) -> Imports:
    """Three imports of files near by and one of any, all forward: the most that can be divided."""
    last = len(paths) - 1
    return Imports.of(
        {
            path: [
                *(paths[min(last, place + drawn.randint(1, 12))] for _ in range(3)),
                paths[drawn.randint(min(place + 1, last), last)],
            ]
            for place, path in enumerate(paths)
        }
    )


def works(count: int) -> Iterator[tuple[str, float, Callable[[], object]]]:
    """What is measured, its target, and the work."""
    drawn = random.Random(9)
    tree = mixed(count, drawn)
    flat = [f"flat/f{number:05}.py" for number in range(count)]
    for name, paths, target in (("mixed", tree, MIXED), ("one directory", flat, MIXED)):
        files, imports = Inventory.of(dict.fromkeys(paths, 100)), imports_of(paths, drawn)
        plan = decompose(files, imports)
        yield (
            f"{name}, {len(plan.leaves)} leaves",
            target,
            partial(decompose, files, imports),
        )
        yield (
            f"{name}, at most 20 files",
            target,
            partial(decompose, files, imports, Options(max_files=20)),
        )
        yield f"{name}, score", target, partial(score, plan, imports)
    alike = Inventory.of(flat)
    yield "one directory, alike", ALIKE, lambda: decompose(alike)


def print_times(rounds: int) -> int:
    """Print the least CPU time of some rounds for each; 1 if a target is missed."""
    missed = 0
    for count in (1_000, 10_000):
        for name, target, work in works(count):
            times = []
            for _ in range(rounds):
                begun = time.process_time()
                work()
                times.append(time.process_time() - begun)
            missed += min(times) > target
            print(f"{count:>6,} files  {name:<36} {min(times):.3f} s  (target {target:g})")
    return int(missed > 0)
