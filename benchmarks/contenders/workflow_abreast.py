"""abreast: a workflow's fan-out with a store, as `abreast run` does it; the step is a function."""

from abreast.assembly.names import open_run
from abreast.assembly.workflow_tools import RunTools, Tools
from abreast.jobs.workflow.job import Flow
from abreast.jobs.workflow.load.load import load as load_workflow
from benchmarks.contenders.meter import Lap, Load, large, on_loop, run

FLOW = """
workflow: {id: bench}
inputs: {count: {type: number}}
steps:
  - {id: list, type: python, call: "bench:numbers", with: {count: "{{ inputs.count }}"}}
  - id: fan
    type: fan-out
    items: "{{ steps.list.output.value }}"
    max_concurrency: WIDTH
    step: {id: one, type: python, call: "bench:one", with: {index: "{{ item }}"}}
"""


async def numbers(count: int) -> list[int]:
    """Return the items."""
    return list(range(count))


async def one(index: int) -> dict[str, object]:
    """Return an item's result."""
    return large(index)


async def play(load: Load, lap: Lap) -> list[object]:
    """Play W."""
    functions = {"bench:numbers": numbers, "bench:one": one}
    workflow = load_workflow(FLOW.replace("WIDTH", str(load.width)), "bench.yaml")
    toolkit, opened = (
        RunTools(Tools(find=functions.__getitem__)),
        open_run("bench", store=str(load.scratch / "runs.db")),
    )
    async with toolkit as kit, opened as scope:
        with lap:
            result = await Flow(workflow, kit).run(scope, {"count": load.n})
    return list(result.steps["fan"].output["results"])


if __name__ == "__main__":
    run({"W": on_loop(play)}, package="abreast")
