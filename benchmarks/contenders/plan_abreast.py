"""abreast: plans.

`P15` is rounds of fifteen subplans, ten at once, that do nothing; `P10k` divides files of mixed
directories.
"""

import random

import abreast
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.job import PlanOptions, run_plan
from abreast.jobs.plan.spec import Options, PlanNode
from benchmarks.contenders.meter import Lap, Load, no_op, on_loop, run
from benchmarks.decomposition.times import imports_of, mixed

SUBPLANS = 15


async def play_subplans(load: Load, lap: Lap) -> list[object]:
    """Run fifteen subplans again and again, `n` in all."""
    paths = [f"part{number:03}/file{one}.py" for number in range(SUBPLANS) for one in range(3)]
    plan = decompose(Inventory.of(paths), options=Options(min_files=3))

    async def work(leaf: PlanNode) -> dict[str, object]:
        await no_op(0)
        return {"leaf": leaf.id}

    async with abreast.open_run("bench") as scope:
        with lap:
            for number in range(-(-load.n // SUBPLANS)):
                async with scope.child(f"round{number}") as child:
                    await run_plan(child, plan, work, PlanOptions(width=load.width))
    return []


def play_division(load: Load, lap: Lap) -> list[object]:
    """Divide `n` files."""
    paths = mixed(load.n, random.Random(9))
    files, imports = Inventory.of(dict.fromkeys(paths, 100)), imports_of(paths, random.Random(9))
    with lap:
        decompose(files, imports)
    return []


if __name__ == "__main__":
    run({"P15": on_loop(play_subplans), "P10k": play_division}, package="abreast")
