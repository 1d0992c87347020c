"""The width of a whole run, over all lists and fan-outs: reached, never passed, no deadlock."""

from __future__ import annotations

import asyncio

import pytest

from abreast.jobs.workflow.dry_run import widest
from abreast.jobs.workflow.job import Flow
from abreast.testing import Gate
from tests.jobs.workflow.kits import FakeKit, each, fan, flow, go, step
from tests.jobs.workflow.kits import gate as decision
from tests.turns import turns


async def peak_of(workflow, expected, *, width=None, count, inputs=None, gives=None):
    """Hold every step at a gate until the expected number is inside; return the peak."""
    import abreast

    kit = FakeKit(gate=Gate(), gives=gives)

    async def drive():
        async with abreast.open_run("flow", seed=1) as run:
            return await Flow(workflow, kit, width=width).run(run, inputs or {})

    task = asyncio.ensure_future(drive())
    async with asyncio.timeout(60):
        while len(kit.ended) < count:
            for _ in range(2000):
                if kit.inside == min(expected, count - len(kit.ended)) or task.done():
                    break
                await asyncio.sleep(0)
            await turns()
            kit.gate.open(*list(kit.gate.held))
            await turns(5)
        result = await task
    assert result.ok, result.error
    return kit.peak


def side_by_side(count):
    return [step(f"s{number}", needs=[]) for number in range(count)]


@pytest.mark.parametrize(("width", "expected"), [(1, 1), (3, 3), (None, 64)])
async def test_steps_that_need_nothing_are_bounded_by_the_runs_width(width, expected):
    assert await peak_of(flow(*side_by_side(80)), expected, width=width, count=80) == expected


@pytest.mark.parametrize(("width", "expected"), [(1, 1), (5, 5), (None, 64)])
@pytest.mark.parametrize("levels", [1, 2])
async def test_nested_fan_outs_are_bounded_together_and_do_not_wait_for_each_other(
    width, expected, levels
):
    inner = fan("{{ item }}", each("x"), name="inner", width=10)
    tree = [list(range(10 * row, 10 * row + 10)) for row in range(12)]
    if levels == 2:
        inner = fan("{{ item }}", inner, name="middle", width=3)
        tree = [tree[row : row + 3] for row in range(0, 12, 3)]
    workflow = flow(fan(tree, inner, name="outer", width=12))
    assert await peak_of(workflow, expected, width=width, count=120) == expected


@pytest.mark.parametrize("said", [100, "{{ inputs.n }}"])
async def test_a_wider_fan_out_of_the_file_widens_the_run(said):
    workflow = flow(fan(list(range(120)), each("x"), width=said), inputs={"n": {"type": "number"}})
    assert widest(workflow.steps, {"n": 100}) == 100
    assert await peak_of(workflow, 100, count=120, inputs={"n": 100}) == 100


async def test_a_fan_out_whose_width_a_step_says_widens_the_run_when_it_is_known():
    workflow = flow(step("n"), fan(list(range(90)), each("x"), width="{{ steps.n.output.v }}"))
    assert await peak_of(workflow, 80, count=91, gives={"n": {"v": 80}}) == 80


async def test_the_command_lines_width_is_never_widened():
    workflow = flow(step("n"), fan(list(range(90)), each("x"), width="{{ steps.n.output.v }}"))
    assert await peak_of(workflow, 7, width=7, count=91, gives={"n": {"v": 80}}) == 7


async def test_a_file_as_a_step_has_no_places_of_its_own(tmp_path):
    text = "workflow: {id: inner}\ninputs: {name: {}}\nsteps:\n"
    text += "".join(
        f"  - {{id: s{n}, type: do, who: '{{{{ inputs.name }}}}{n}', needs: []}}\n"
        for n in range(6)
    )
    (tmp_path / "inner.yaml").write_text(text)
    calls = [
        {
            "id": f"call{n}",
            "type": "workflow",
            "workflow": "inner.yaml",
            "needs": [],
            "input": {"name": f"{n}-"},
        }
        for n in range(3)
    ]
    assert await peak_of(flow(*calls, directory=tmp_path), 4, width=4, count=18) == 4


async def test_a_gate_that_waits_for_a_person_holds_no_place():
    asked = asyncio.Event()

    class Patient(FakeKit):
        async def decide(self, question):
            asked.set()
            await others.wait()
            return "approve"

        async def act(self, who):
            others.set()
            return await super().act(who)

    others = asyncio.Event()
    kit = Patient()
    result = await go(flow(decision("ask", needs=[]), step("work", needs=[])), kit, width=1)
    assert result.ok
    assert asked.is_set()
