"""The page's view of a plan: states of subplans, blocking, and files that several changed."""

import asyncio
import json

import pytest

import abreast
from abreast.assembly.names import open_run
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.job import PlanOptions, run_plan
from abreast.jobs.plan.spec import Options
from abreast.testing import Gate, MemoryStore
from abreast.web.store_reader import JobViewReader
from tests.turns import turns
from tests.web.jobs.viewing import HOSTILE, Hand, settled, viewed


def plan_of(count, files=3):
    paths = [f"part{number:02}/file{one}.py" for number in range(count) for one in range(files)]
    return decompose(Inventory.of(paths), options=Options(min_files=files))


async def planned(store, plan, work, how=None, resume="auto"):
    async with open_run(
        "plan", store=store, kind="plan", manifest={"plan": {"path": "/here"}}, resume=resume
    ) as run:
        return await run_plan(run, plan, work, how or PlanOptions())


def leaves(view):
    return {node["scope"]: node for node in view["nodes"] if node["leaf"]}


async def test_every_node_is_there_with_its_size_and_state():
    store = MemoryStore()

    async def work(leaf):
        if leaf.scope == "part01/":
            raise RuntimeError(HOSTILE[:30])
        return {"files": list(leaf.files), "changed": [leaf.files[0], "shared.py"]}

    await planned(store, plan_of(3), work)
    view = viewed(store, "plan-1")
    assert [(node["scope"], node["parent"], node["leaf"]) for node in view["nodes"]] == [
        ("./", None, False),
        ("part00/", "root", True),
        ("part01/", "root", True),
        ("part02/", "root", True),
    ]
    assert {scope: node["state"] for scope, node in leaves(view).items()} == {
        "part00/": "done",
        "part01/": "failed",
        "part02/": "done",
    }
    assert (view["counts"], view["nodes"][0]["files"]) == ({"done": 2, "failed": 1}, 9)
    assert "<script>" in leaves(view)["part01/"]["said"]
    [clash] = view["clashes"]
    assert (clash["file"], len(clash["leaves"])) == ("shared.py", 2)
    assert (leaves(view)["part00/"]["clashes"], leaves(view)["part01/"]["clashes"]) == (1, 0)
    assert view["outside"] == []


def test_what_was_done_again_after_the_tree_was_divided_otherwise_counts_once():
    store = MemoryStore()
    hand = Hand(store, "plan", "plan")

    def divided(*names):
        return (
            "plan-divided",
            "plan",
            {},
            json.dumps([{"id": one, "parent": None, "scope": one} for one in names]),
        )

    done = json.dumps({"files": ["a/f"], "changed": ["a/f"]})
    hand.write(divided("old", "b"), settled("plan/subplans/old", done))
    hand.write(divided("new", "b"), settled("plan/subplans/new", done))
    view = viewed(store, hand.id)
    assert (sum(view["counts"].values()), view["counts"]["done"]) == (2, 1)
    assert [node["id"] for node in view["nodes"]] == ["new", "b"]
    assert (view["clashes"], view["outside"]) == ([], [])


@pytest.mark.parametrize("answered", [True, False])
def test_a_write_that_its_owner_was_asked_for_is_no_clash_once_that_has_worked_on_it(answered):
    store = MemoryStore()
    hand = Hand(store, "plan", "plan")
    nodes = [{"id": one, "parent": None, "scope": one} for one in "ab"]
    hand.write(("plan-divided", "plan", {}, json.dumps(nodes)))
    wrote = {"files": ["a/f"], "changed": ["a/f", "b/f"]}
    asked = {"requests": [{"by": "a", "file": "b/f"}], "answered": answered}
    made = {"files": ["b/f"], "changed": ["b/f"]}
    hand.write(settled("plan/subplans/a", json.dumps(wrote)))
    hand.write(settled("plan/subplans-2/b", json.dumps(made | asked)))
    view = viewed(store, hand.id)
    listed = [] if answered else ["b/f"]
    assert [one["file"] for one in view["clashes"]] == listed
    assert [one["file"] for one in view["outside"]] == listed
    assert leaves(view)["b"]["requests"] == ["a: b/f"]


async def test_what_needs_a_failed_subplan_is_blocked_by_name():
    store, plan = MemoryStore(), plan_of(3)
    first, second, third = (leaf.id for leaf in plan.leaves)

    async def work(leaf):
        raise RuntimeError("no")

    await planned(store, plan, work, PlanOptions(needs={second: [first], third: [second]}))
    view = leaves(viewed(store, "plan-1"))
    assert [view[f"part0{n}/"]["state"] for n in range(3)] == ["failed", "blocked", "blocked"]
    assert view["part02/"]["said"] == f"it needs {first}"


async def test_it_moves_while_it_runs_and_goes_on_when_it_is_resumed():
    store, gate, told, plan = MemoryStore(), Gate(), JobViewReader("plan"), plan_of(3)
    broken = {plan.leaves[2].id}

    async def work(leaf):
        await gate.pass_(leaf.id)
        if leaf.id in broken:
            raise RuntimeError("no")
        return {"files": [], "changed": []}

    task = asyncio.ensure_future(planned(store, plan, work, PlanOptions(width=2)))
    await gate.wait_for(plan.leaves[0].id, plan.leaves[1].id)
    gate.open(plan.leaves[0].id)
    await gate.wait_for(plan.leaves[2].id)
    while viewed(store, "plan-1", told)["counts"].get("done") != 1:
        await turns(1)
    gate.open_all()
    await task
    assert viewed(store, "plan-1", told)["counts"] == {"done": 2, "failed": 1}
    broken.clear()
    await planned(store, plan, work, resume="failed")
    assert viewed(store, "plan-1", told)["counts"] == {"done": 3}
    assert viewed(store, "plan-1", told) == viewed(store, "plan-1")


def test_a_huge_plan_is_bounded_and_counted_whole():
    store = MemoryStore()
    hand = Hand(store, "plan", "plan")
    nodes = [
        {"id": f"n{n}", "parent": None if not n else "n0", "scope": "s" * 500, "files": 1}
        for n in range(5_001)
    ]
    hand.write(("plan-divided", "plan", {}, json.dumps(nodes)))
    body = json.dumps({"files": [], "changed": [f"{n}.py" for n in range(200)]})
    hand.write(*(settled(f"plan/subplans/n{n}", body) for n in range(1, 101)))
    hand.end("interrupted")
    view = viewed(store, hand.id)
    assert (len(view["nodes"]), view["counts"]) == (600, {"done": 100, "pending": 4_900})
    assert (len(view["clashes"]), view["more_clashes"]) == (50, 150)
    assert view["cut"] == "shown: 600 of 5,001 nodes"


def test_a_file_that_another_owns_is_told_and_damage_is_not():
    store = MemoryStore()
    hand = Hand(store, "plan", "plan")
    hand.write(("plan-divided", "plan", {}, "{"))
    hand.settle("plan/subplans/a", '{"files": ["a.py"], "changed": ["a.py"]}')
    hand.settle("plan/subplans/b", '{"files": ["b.py"], "changed": ["a.py", "new.py"]}')
    hand.settle("plan/subplans/c", '{"files": 5, "changed": {"x": 1}}')
    view = viewed(store, hand.id)
    assert view["outside"] == [{"file": "a.py", "leaves": ["b"]}]
    assert [node["id"] for node in view["nodes"]] == ["a", "b", "c"]


async def test_a_subplans_changes_are_recorded_with_it():
    """The view reads what the job records: the event of the tree, and a subplan's changes."""
    store, plan = MemoryStore(), plan_of(2)

    async def work(leaf):
        return {"changed": []}

    async with abreast.open_run("plan", store=store) as run:
        await run_plan(run, plan, work, PlanOptions())
    [divided] = store.events("plan-1", kinds={"plan-divided"})
    assert [node["id"] for node in json.loads(divided.body)] == [node.id for node in plan.nodes]


def test_what_was_cut_off_or_cancelled_is_told_so():
    store = MemoryStore()
    hand = Hand(store, "plan", "plan")
    hand.write(
        (
            "plan-divided",
            "plan",
            {},
            json.dumps([{"id": one, "parent": None, "scope": one} for one in "abc"]),
        ),
        ("item-started", "plan", {}, None),
        ("item-queued", "plan/subplans/a", {}, None),
        ("item-started", "plan/subplans/b", {}, None),
        settled("plan/subplans/b/call/x", "{}"),
        settled("plan/subplans/c", None, state="cancelled", reason="another failed"),
    )
    assert viewed(store, hand.id)["counts"] == {"queued": 1, "running": 1, "cancelled": 1}
    assert viewed(store, hand.id)["nodes"][2]["said"] == "another failed"
    hand.write(("run-ended", "plan", {"state": "failed"}, None))
    hand.end("failed")
    assert viewed(store, hand.id)["counts"] == {"not run": 2, "cancelled": 1}
    hand.settle("plan/subplans/a", "{", state="failed")
    assert viewed(store, hand.id)["nodes"][0]["said"] == "a failure that can't be read"
