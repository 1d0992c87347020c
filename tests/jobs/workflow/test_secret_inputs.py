"""Secret inputs: what expressions see, what steps get, and that no output or error shows one."""

from __future__ import annotations

import pytest

import abreast
from abreast.jobs.workflow.inputs import Secrets
from abreast.jobs.workflow.job import Flow
from abreast.testing import MemoryStore
from tests.jobs.workflow.kits import FakeKit, fan, flow, go, step

SECRET = {"token": {"secret": True}}


class Stubborn(Exception):
    """An error whose text does not come from its arguments."""

    def __init__(self, token):
        super().__init__()
        self.token = token

    def __str__(self):
        return f"stubborn {self.token}"


@pytest.mark.parametrize(
    ("given", "hidden"),
    [
        ("a b", "a b"),
        ("a xyz b xyz", "a *** b ***"),
        (["xyz", {"xyz": ("xyz", 1)}], ["***", {"***": ("***", 1)}]),
        (123, "***"),
        (1234, 1234),
        (True, True),
        (None, None),
        ("xyzlong", "***"),
    ],
)
def test_a_secret_is_masked_wherever_it_stands(given, hidden):
    assert Secrets(["xyz", "xyzlong", "123", ""]).hide(given) == hidden


@pytest.mark.parametrize("error", [ValueError("bad xyz"), Stubborn("xyz"), OSError(2, "xyz")])
def test_an_error_and_those_that_led_to_it_are_masked(error):
    try:
        try:
            raise Stubborn("xyz")
        except Stubborn as first:
            raise error from first
    except Exception as raised:
        hidden = Secrets(["xyz"]).hide_error(raised)
    words = f"{hidden}{hidden!r}{hidden.__cause__}"
    assert "xyz" not in words
    assert "***" in words


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: fan([0], one)])
async def test_a_fault_that_ends_the_run_is_recorded_without_the_secret(wrap):
    store = MemoryStore()
    own = {"id": "w", "type": "do", "who": "{{ inputs.token }}"}
    kit = FakeKit(raises={"s3cret": ValueError("bad s3cret")})
    with pytest.raises(ValueError, match=r"bad \*\*\*"):
        async with abreast.open_run("flow", store=store, seed=1) as run:
            await Flow(flow(wrap(own), inputs=SECRET), kit).run(run, {"token": "s3cret"})
    assert kit.calls == ["s3cret"]
    assert "s3cret" not in repr(
        [store.get("flow-1"), store.events("flow-1"), store.outcomes("flow-1")]
    )


async def test_another_value_of_a_secret_runs_nothing_again_and_what_failed_gets_it():
    store = MemoryStore()
    workflow = flow(
        step("a", "a{{ inputs.token }}"),
        fan([0], step("b", "b{{ inputs.token }}")),
        step("c"),
        inputs=SECRET,
    )
    assert not (await go(workflow, FakeKit(fails={"c": "no"}), {"token": "one"}, store=store)).ok
    kit = FakeKit()
    assert (await go(workflow, kit, {"token": "two"}, store=store)).ok
    assert kit.calls == ["c"]


async def test_an_empty_secret_is_no_secret_and_conditions_can_tell():
    kit = FakeKit()
    workflow = flow(step("a", "a", **{"if": "{{ inputs.token == '' }}"}), step("b"), inputs=SECRET)
    assert (await go(workflow, kit, {"token": ""})).ok
    assert kit.calls == ["a", "b"]
    assert (await go(workflow, kit, {"token": "x"})).ok
    assert kit.calls == ["a", "b", "b"]
