"""What is measured of plans, for asv and for our own programs alike."""

import asyncio
import random
import time
from pathlib import Path

import abreast
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.job import PlanOptions, run_plan
from abreast.jobs.plan.spec import Options, Plan, PlanNode
from benchmarks.decomposition.times import imports_of, mixed

NAP = 0.1
"""Seconds that a subplan takes."""
WIDTHS = (1, 2, 5, 10, 15, 20, 30, 40, 50)


def plan_of(count: int) -> Plan:
    """A plan of so many subplans."""
    paths = [f"part{number:03}/file{one}.py" for number in range(count) for one in range(3)]
    return decompose(Inventory.of(paths), options=Options(min_files=3))


async def _play(plan: Plan, width: int, nap: float, store: Path | None) -> tuple[float, int]:
    async def work(leaf: PlanNode) -> dict[str, object]:
        await asyncio.sleep(nap)
        return {"leaf": leaf.id}

    async with abreast.open_run("bench", store=None if store is None else str(store)) as run:
        begun = time.perf_counter()
        result = await run_plan(run, plan, work, PlanOptions(width=width))
        took = time.perf_counter() - begun
    if not result.ok or [one.value["leaf"] for one in result.subplans] != [
        leaf.id for leaf in plan.leaves
    ]:
        raise RuntimeError("the subplans did not come back as they were")
    return took, result.peak


def makespan(plan: Plan, width: int, nap: float = NAP, store: Path | None = None) -> float:
    """How many times longer than at best it takes; at best, `width` are always busy."""
    took, peak = asyncio.run(_play(plan, width, nap, store))
    count = len(plan.leaves)
    if peak != min(width, count):
        raise RuntimeError(f"{peak} ran at once, not {width}")
    return took / (-(-count // width) * nap)


def layout(kind: str, count: int) -> Inventory:
    """So many files: of mixed directories, or alike in one."""
    paths = (
        mixed(count, random.Random(9))
        if kind == "mixed"
        else [f"flat/f{one:05}.py" for one in range(count)]
    )
    return Inventory.of(dict.fromkeys(paths, 100))


def divide(kind: str, files: Inventory) -> Plan:
    """Divide them; the mixed ones with imports."""
    imports = imports_of(list(files.paths), random.Random(9)) if kind == "mixed" else None
    return decompose(files, imports)
