"""Faults of an item that are no ordinary failure of a step.

They occur before anything of the item is recorded, or are exceptions that no step handles.
"""

from __future__ import annotations

import asyncio

import pytest

from abreast.jobs.workflow.tools import CannotDo
from abreast.testing import Gate, MemoryStore
from tests.jobs.workflow.kits import (
    FakeKit,
    at_gate,
    each,
    fan,
    flow,
    go,
    recorded,
    statuses,
    step,
)
from tests.turns import turns

ITEMS = ["0", "1", "x", "3", "4", "5", "6", "7"]
"""The third is no JSON: a step that parses it fails before it has done anything."""


class WithoutKind(FakeKit):
    """Fake tools in which the custom kind does not exist any more for the third item."""

    async def custom(self, kind, config, context):
        if config["who"] == "wx":
            raise CannotDo("there is no step type 'do'")
        return await super().custom(kind, config, context)


UNREADABLE = step("w", "w{{ item | from_json }}")
CUSTOM = {"id": "w", "type": "do", "who": "w{{ item }}"}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    "template", [UNREADABLE, CUSTOM], ids=["an expression that fails", "an unknown step type"]
)
async def test_it_halts_at_its_place_starts_nothing_after_it_and_says_the_same_at_every_width(
    template, nested
):
    steps = [template, each("z")] if nested else [template]
    seen = []
    for width in (1, 3, 8):
        kit, store = WithoutKind(gate=Gate()), MemoryStore()
        workflow = flow(fan(ITEMS, *steps, width=width), step("after"))

        async def body(kit=kit, width=width):
            if width > 1:
                await kit.gate.wait_for("w0", "w1")
                # The third fails first: the items before it go on, those after it are stopped.
                while kit.gate.held != {"w0", "w1"}:  # noqa: ASYNC110 - the suite's own limit ends it
                    await asyncio.sleep(0)
                kit.gate.open("w1")
                await turns()
            kit.gate.open_all()

        result = await at_gate(workflow, kit, body, store=store)
        assert not kit.inside
        assert result.status == "failed"
        last = "z" if nested else "w"
        done = {f"fan:{last}:0": "completed", f"fan:{last}:1": "completed"}
        assert done.items() <= statuses(result).items()
        assert "after" not in kit.calls
        if width == 1:
            assert not {"w3", "w4", "w5", "w6", "w7"} & set(kit.calls)
        whole = [
            path
            for path, state in recorded(store).items()
            if state == "done" and path.count("/") == 2
        ]
        assert sorted(whole) == ["flow/fan/0000", "flow/fan/0001"]
        results = result.steps["fan"].output["results"]
        seen.append((result.error, statuses(result), results))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0][2]) == 3


@pytest.mark.parametrize("width", [1, 3])
async def test_a_resume_runs_it_and_what_came_after_it_and_nothing_else(width):
    store = MemoryStore()
    workflow = flow(fan(ITEMS, CUSTOM, width=width))
    assert (await go(workflow, WithoutKind(), store=store)).status == "failed"
    kit = FakeKit()
    assert (await go(workflow, kit, store=store)).ok
    assert not {"w0", "w1"} & set(kit.calls)
    assert {"wx", "w3", "w7"} <= set(kit.calls)


class Boom(Exception):
    """A fault in the code of a kind, which is no failure of a step."""


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("more", [{}, {"max_failures": 9}])
async def test_an_exception_that_escapes_stops_later_items_at_once_and_is_raised_in_its_turn(
    nested, more
):
    kit = FakeKit(gate=Gate(), raises={"w1": Boom("mine")})
    steps = [CUSTOM, each("z")] if nested else [CUSTOM]
    workflow = flow(fan(list(range(24)), *steps, width=4, **more), step("after"))

    async def body():
        await kit.gate.wait_for("w0", "w1", "w2", "w3")
        kit.gate.open("w1")
        while kit.gate.held != {"w0"}:  # noqa: ASYNC110 - the suite's own limit ends it
            await asyncio.sleep(0)
        await turns(200)
        assert sorted(kit.cancelled) == ["w2", "w3"]
        kit.gate.open("w0", "z0")

    with pytest.raises(Boom) as caught:
        await at_gate(workflow, kit, body)
    assert caught.value is kit.raises["w1"]
    assert [name for name in kit.calls if name.startswith("w")] == ["w0", "w1", "w2", "w3"]
    assert kit.ended[-1] == ("z0" if nested else "w0")  # what came before it was left to end
    assert "after" not in kit.calls
