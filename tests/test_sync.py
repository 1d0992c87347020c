"""The blocking twins of the jobs: the same arguments, and usable wherever a thread may wait."""

import asyncio
import inspect
import threading

import pytest

import abreast
from abreast.core.errors import BudgetSpent, WouldBlock
from abreast.run.calls.model import Caller
from abreast.testing import ScriptedModel

TWINS = ["matrix", "optimize", "plan", "sample", "workflow"]

FLOW = """
workflow: {id: greet, name: Greet}
steps: [{id: a, type: shell, run: echo hello}]
"""


def model():
    return ScriptedModel(lambda request: "blue")


def test_map_is_the_same_in_both_places():
    assert abreast.sync.map is abreast.map


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_arguments_and_the_documentation_of_the_verb(name):
    verb, twin = getattr(abreast, name), getattr(abreast.sync, name)
    assert not inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(verb)
    assert inspect.getdoc(verb).splitlines()[0] in inspect.getdoc(twin)


@pytest.mark.parametrize(
    "call",
    [
        abreast.map,
        abreast.open_run,
        abreast.open_model,
        abreast.sample,
        abreast.dry_run_sample,
        abreast.workflow,
        abreast.Run.map,
        abreast.Run.step,
        abreast.Run.child,
        Caller.ask,
    ],
)
def test_every_keyword_has_a_type_and_a_line_of_documentation(call):
    documented = inspect.getdoc(call).partition("Args:\n")[2]
    parameters = dict(inspect.signature(call).parameters)
    parameters.pop("self", None)
    for name, parameter in parameters.items():
        assert f"\n    {name}: " in f"\n{documented}" or f"*{name}: " in documented, name
        assert parameter.annotation not in (inspect.Parameter.empty, "Any")


async def test_a_twin_waits_inside_a_running_loop():
    assert abreast.sync.sample("Name a colour.", model=model()).text == "blue"


def test_a_workflow_is_waited_for(tmp_path):
    (tmp_path / "flow.yaml").write_text(FLOW, "utf-8")
    result = abreast.sync.workflow(tmp_path / "flow.yaml", store=tmp_path / "runs.db")
    assert result.steps["a"].output["stdout"].strip() == "hello"


def test_inside_a_plain_item_a_twin_works_beneath_the_item():
    paths = []

    def say(request):
        paths.append(abreast.current().path)
        return "blue"

    def work(item):
        return abreast.sync.sample("Name a colour.", model=ScriptedModel(say)).text

    assert [outcome.value for outcome in abreast.map(work, ["x"], width=1)] == ["blue"]
    assert paths == ["work/work/0000/sample/branch/0000"]


def test_inside_an_async_item_a_twin_says_that_it_would_stop_the_loop():
    async def work(item):
        return abreast.sync.sample("Name a colour.", model=model()).text

    (outcome,) = abreast.map(work, ["x"], width=1)
    assert isinstance(outcome.error, WouldBlock)
    assert "use `await abreast.sample(...)` there" in str(outcome.error)


async def test_with_a_run_of_another_thread_a_twin_works_on_the_loop_of_that_run():
    threads = []

    def say(request):
        threads.append(threading.current_thread())
        return "blue"

    async with abreast.open_run("r") as run:
        with pytest.raises(WouldBlock):
            abreast.sync.sample("Name a colour.", model=model(), run=run)
        result = await asyncio.to_thread(
            abreast.sync.sample, "Name a colour.", model=ScriptedModel(say), run=run
        )
    assert result.text == "blue"
    assert threads == [threading.current_thread()]


def test_inside_an_item_a_map_has_lanes_and_a_budget_of_its_own():
    def work(item):
        lanes = {"desk": abreast.Pool(["left"])}
        inner = abreast.map(place, "ab", width=1, hold="desk", lanes=lanes, budget="1req")
        first = next(inner)
        with pytest.raises(BudgetSpent, match="1 of 1 requests"):
            next(inner)
        return first.value

    def place(item):
        return abreast.current().path, dict(abreast.current().held)

    (outcome,) = abreast.map(work, ["x"], width=1)
    assert outcome.value == ("work/work/0000/place/place/0000", {"desk": "left"})


@pytest.mark.parametrize("verb", ["map", "workflow"])
def test_inside_an_item_options_of_a_run_of_its_own_are_refused(verb, tmp_path):
    (tmp_path / "flow.yaml").write_text(FLOW, "utf-8")

    def work(item):
        if verb == "map":
            return list(abreast.map(len, "ab", width=1, store=tmp_path / "runs.db", tags=["t"]))
        return abreast.sync.workflow(tmp_path / "flow.yaml", store=tmp_path / "runs.db", tags=["t"])

    (outcome,) = abreast.map(work, ["x"], width=1)
    assert isinstance(outcome.error, TypeError)
    assert str(outcome.error).startswith("within a run, store and tags are the run's own")
    assert not (tmp_path / "runs.db").exists()


def test_a_workflow_inside_an_item_keeps_its_own_budget(tmp_path):
    (tmp_path / "flow.yaml").write_text(FLOW.replace("}]", "}, {id: b, run: echo, type: shell}]"))

    def work(item):
        return abreast.sync.workflow(tmp_path / "flow.yaml", budget="1req")

    (outcome,) = abreast.map(work, ["x"], width=1)
    assert isinstance(outcome.error, BudgetSpent)
