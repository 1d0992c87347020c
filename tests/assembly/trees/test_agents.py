"""Agents for jobs: one lane in this process with the width of `[lanes.NAME]`, and in Python."""

import pytest

import abreast
from abreast.agents.known import KNOWN
from abreast.assembly.trees.agents import ChosenAgent, lane_of_agent
from abreast.limits.slots import Slots
from abreast.models.lanes import read_lanes
from tests.agents.stubs import stub_toml, write_stub

CLAUDE, CODEX = KNOWN["claude"], KNOWN["codex"]


def lane(*, allow=(), model=None, runner=CLAUDE, **table):
    lanes = read_lanes({"claude": table} if table else {}, "abreast.toml")
    return lane_of_agent(ChosenAgent(runner, allow, model, lanes))


def test_an_agent_has_one_lane_whatever_it_is_called_with():
    found = lane(allow=("read",))
    assert lane(allow=("run",), model="opus") is found
    assert lane(runner=CODEX) is not found
    assert found.held == ()


def test_its_width_is_that_of_the_lane_of_its_name():
    found = lane(width=3)
    (slots,) = found.held
    assert isinstance(slots, Slots)
    assert slots.count == 3
    assert lane(width=3, allow=("edit",)) is found
    assert lane(width=3, shared=True).terms is not None


def test_a_lane_that_has_models_of_that_name_bounds_the_agent_by_its_width_alone():
    found = lane(kind="anthropic", base_url="http://127.0.0.1:9", width=2, rpm=5)
    assert [type(limit) for limit in found.every] == [Slots]
    assert lane(kind="anthropic", base_url="http://127.0.0.1:9", width=2, rpm=7) is found


async def test_a_workflow_in_python_has_the_agents_of_abreast_toml(tmp_path, monkeypatch):
    stub = write_stub(tmp_path, "end('did ' + task)")
    (tmp_path / "abreast.toml").write_text(stub_toml(stub))
    (tmp_path / "flow.yaml").write_text(
        "workflow: {id: a, integration: stub}\nsteps:\n  - {id: s, type: prompt, prompt: it}\n"
    )
    monkeypatch.chdir(tmp_path)
    result = await abreast.workflow("flow.yaml")
    assert result.steps["s"].output["text"] == "did it"
    (tmp_path / "abreast.toml").write_text("agents = 5\n")
    with pytest.raises(ValueError, match="agents must be tables"):
        await abreast.workflow("flow.yaml")
