"""Warm studies and workflows: of prompts that begin alike one goes ahead, the others follow it."""

import asyncio
import json
from pathlib import Path

import pytest

import abreast
from abreast.assembly.workflow_tools import RunTools, Tools
from abreast.core.errors import ServerFault
from abreast.jobs.workflow.job import Flow
from abreast.jobs.workflow.load.load import load
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import Gate
from tests.turns import turns

RULES = "Be kind and brief. " * 300
ITEMS = ["a", "b", "c", "d"]


class Held:
    """Holds every call at a gate by what follows the rules; those in `fails` fail once."""

    name = "fake/held"

    def __init__(self, fails=()):
        self.gate = Gate()
        self.fails = set(fails)
        self.shared = []

    async def complete(self, request, hear=None):
        text = request.messages[-1].content
        who, *_ = text.removeprefix(RULES).split(".")
        self.shared.append(request.shared_prefix)
        await self.gate.pass_(who)
        if who in self.fails:
            self.fails.discard(who)
            raise ServerFault("it fell over")
        return Reply(who)

    async def close(self):
        pass

    async def ahead(self, *who):
        """Wait until these are inside, and see that no other comes while they are held."""
        await self.gate.wait_for(*who, timeout=60)
        await turns(300)
        assert sorted(self.gate.held) == list(who)

    async def full(self, *who):
        """Wait until these are inside together; then let all pass."""
        await self.gate.wait_for(*who, timeout=60)
        assert self.gate.held >= set(who)
        self.gate.open_all()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("abreast.toml").touch()
    return tmp_path


def run_study(model, strategies=None, inputs=ITEMS, **options):
    return asyncio.ensure_future(
        abreast.matrix(
            models=[model],
            strategies=strategies or {"plain": RULES + "{{ input.text }}"},
            inputs=inputs,
            width=4,
            **options,
        )
    )


def run_flow(model, steps, **options):
    text = json.dumps({"workflow": {"id": "flow"}, "inputs": INPUTS, "steps": steps})
    flow = load(text, "flow.yaml", directory=Path())
    caller = Caller(model, ModelLane("fake"), warm=True, retry=None)

    async def run():
        tools = Tools(default_model=model.name)
        async with RunTools(tools, {model.name: caller}) as kit, abreast.open_run("f") as run:
            return await Flow(flow, kit, **options).run(run, {"rules": RULES})

    return asyncio.ensure_future(run())


INPUTS = {"rules": {"type": "string"}}


def fan_out(prompt, **more):
    step = {"id": "ask", "type": "prompt", "prompt": prompt, **more}
    return {"id": "fan", "type": "fan-out", "items": ITEMS, "max_concurrency": 4, "step": step}


async def test_one_cell_of_a_warm_study_goes_ahead_and_the_lane_is_full_then(here):
    model = Held()
    work = run_study(model, warm=True)
    await model.ahead("a")
    model.gate.open("a")
    await model.full("b", "c", "d")
    result = await work
    assert (result.done, model.gate.arrived) == (4, ITEMS)
    assert set(model.shared) == {len(RULES)}


async def test_without_warm_the_cells_of_a_study_start_together(here):
    model = Held()
    work = run_study(model)
    await model.full(*ITEMS)
    await work
    assert set(model.shared) == {None}


async def test_each_beginning_has_one_that_goes_ahead(here):
    model = Held()
    strategies = {"one": RULES + "1 {{ input.text }}", "two": RULES + "2 {{ input.text }}"}
    work = run_study(model, strategies, warm=True)
    await model.ahead("1 a", "2 a")
    model.gate.open("1 a")
    await model.full("1 b", "1 c", "1 d", "2 a")
    assert (await work).done == 8


def run_sample(model, **options):
    caller = Caller(model, ModelLane("fake"), retry=None)
    never = ["regex ^never$"]
    sample = abreast.sample(RULES + "a", model=caller, checks=never, breadth=3, **options)
    return asyncio.ensure_future(sample)


@pytest.mark.filterwarnings("ignore:all 3 branches drew the same text")
async def test_a_warm_sample_sends_one_draw_ahead():
    model = Held()
    work = run_sample(model, warm=True)
    await model.ahead("a")
    assert len(model.gate.arrived) == 1
    model.gate.open_all()
    assert not (await work).ok
    assert len(model.shared) == 3
    assert min(model.shared) > len(RULES)  # the checks are in the prompt too


@pytest.mark.filterwarnings("ignore:all 3 branches drew the same text")
async def test_without_warm_the_prompt_of_a_sample_is_not_marked():
    model = Held()
    model.gate.open_all()
    await run_sample(model)
    assert model.shared == [None] * 3


@pytest.mark.filterwarnings("ignore:all 3 branches drew the same text")
async def test_the_samples_of_a_warm_study_send_one_draw_ahead(here):
    model = Held()
    sample = {"prompt": RULES + "{{ input.text }}", "breadth": 3, "checks": ["regex ^never$"]}
    work = run_study(model, {"drawn": {"sample": sample}}, inputs=["a"], warm=True)
    await model.ahead("a")
    assert len(model.gate.arrived) == 1
    model.gate.open_all()
    assert (await work).done == 1
    assert len(model.gate.arrived) == 3


@pytest.mark.parametrize(
    "prompt",
    [
        RULES + "{{ item }}",
        "{{ inputs.rules }}{{ item }}",
        "{{ steps.before.output.value }}{{ item }}",
    ],
)
async def test_one_prompt_of_a_warm_step_goes_ahead(prompt):
    model = Held()
    before = {"id": "before", "type": "python", "call": "m:f"}
    steps = [before, fan_out(prompt, warm=True)]
    text = json.dumps({"workflow": {"id": "flow"}, "inputs": INPUTS, "steps": steps})
    flow = load(text, "flow.yaml", directory=Path())
    caller = Caller(model, ModelLane("fake"), warm=True)
    tools = Tools(default_model=model.name, find=lambda _: lambda: RULES)

    async def run():
        async with RunTools(tools, {model.name: caller}) as kit, abreast.open_run("f") as run:
            return await Flow(flow, kit).run(run, {"rules": RULES})

    work = asyncio.ensure_future(run())
    await model.ahead("a")
    model.gate.open("a")
    await model.full("b", "c", "d")
    result = await work
    assert [one["text"] for one in result.steps["fan"].output["results"]] == ITEMS
    assert set(model.shared) == {len(RULES)}


async def test_all_prompts_of_a_warm_workflow_are_warm():
    model = Held()
    work = run_flow(model, [fan_out("{{ inputs.rules }}{{ item }}")], warm=True)
    await model.ahead("a")
    model.gate.open_all()
    assert (await work).ok


async def test_what_differs_from_item_to_item_is_not_shared():
    model = Held()
    ask = {"id": "first", "type": "prompt", "prompt": "{{ inputs.rules }}{{ item }}", "warm": True}
    again = {"id": "then", "type": "prompt", "prompt": "{{ steps.first.output.text }}{{ item }}"}
    fan = {"id": "fan", "type": "fan-out", "items": ITEMS, "max_concurrency": 4}
    model.gate.open_all()
    result = await run_flow(model, [{**fan, "steps": [ask, {**again, "warm": True}]}])
    assert result.ok
    assert sorted(model.shared) == [0] * 4 + [len(RULES)] * 4


async def test_if_the_first_prompt_fails_the_next_goes_ahead():
    model = Held(fails="a")
    step = fan_out("{{ inputs.rules }}{{ item }}", warm=True, continue_on_error=True)
    work = run_flow(model, [step])
    await model.ahead("a")
    model.gate.open("a")
    # Which one is the next is not promised: they prepare their prompts side by side.
    others = [asyncio.ensure_future(model.gate.wait_for(who)) for who in "bcd"]
    await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
    await turns(300)
    assert len(model.gate.held) == 1
    model.gate.open_all()
    await asyncio.gather(*others)
    result = await work
    assert [one.get("text") for one in result.steps["fan"].output["results"]] == [
        None,
        "b",
        "c",
        "d",
    ]
