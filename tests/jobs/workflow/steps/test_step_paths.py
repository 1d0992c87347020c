"""Every step that is journaled is found by its full id, at any depth."""

from abreast.core.item import unescape
from abreast.jobs.workflow.job import WORKFLOW_OUTLINED
from abreast.jobs.workflow.steps.step_paths import StepPaths
from abreast.store.codec import codec
from abreast.store.port import each_event, each_outcome
from abreast.testing import MemoryStore
from tests.jobs.workflow.kits import FakeKit, each, fan, flow, go, step


def loop(*steps, name, **more):
    return {
        "id": name,
        "type": "while",
        "condition": True,
        "max_iterations": 2,
        "steps": list(steps),
        **more,
    }


def branch(*steps, name):
    return {"id": name, "type": "if", "condition": True, "then": list(steps)}


DEEP = flow(
    step("plain"),
    step("spends", budget="5req"),
    branch(step("within"), loop(step("turn"), name="twice"), name="if"),
    fan(["a", "b"], each("alone"), name="named", key="{{ item }}"),
    fan(
        [0, 1], each("first"), fan([2, 3], each("deep"), name="inner"), name="outer", budget="99req"
    ),
    loop(
        step("body"),
        loop(step("core"), fan([4, 5], each("spread"), name="wide"), name="small"),
        name="large",
    ),
)


async def test_the_full_id_of_a_path_is_the_one_under_which_the_step_is_told():
    store = MemoryStore()
    result = await go(DEEP, FakeKit(), store=store)
    (run,) = store.runs()
    (outlined,) = each_event(store, run.id, {WORKFLOW_OUTLINED})
    outcomes = list(each_outcome(store, run.id))
    paths = StepPaths(
        codec.decode(outlined.body), {one.path: one.data["index"] for one in outcomes}
    )
    found = {one.path: paths.ids(one.path) for one in outcomes}
    items = {unescape(path) for path, ids in found.items() if not ids}
    assert items == {
        "flow/outer:budget/outer/0000",
        "flow/outer:budget/outer/0001",
    }  # of several steps each
    leaves = {name for name, record in result.steps.items() if record.type == "python"}
    assert {name for ids in found.values() for name in ids} == leaves
    for one in outcomes:
        for name in found[one.path][:1]:
            assert codec.decode(one.body)["output"] == result.steps[name].output, name


async def test_a_path_of_no_step_has_no_id():
    paths = StepPaths([{"id": "a", "type": "shell", "budget": False, "beneath": []}], {})
    assert paths.ids("flow/a") == ("a",)
    assert [paths.ids(path) for path in ("flow", "flow/b", "flow/a/judge", "flow/b/0000/a")] == [
        ()
    ] * 4
