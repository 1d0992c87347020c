"""Running subplans: the width is reached and never passed, order, blocking, and halts."""

import asyncio

import pytest

import abreast
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.job import PlanOptions, run_plan
from abreast.jobs.plan.spec import Options
from abreast.run.run import Run
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.jobs.plan.trees import large_layout


def plan_of(count, files=3):
    paths = [f"part{number:02}/file{one}.py" for number in range(count) for one in range(files)]
    plan = decompose(Inventory.of(paths), options=Options(min_files=files))
    assert len(plan.leaves) == count
    return plan


async def ran(plan, work, how=None, store=None, **opening):
    async with abreast.open_run("p", store=store, **opening) as run:
        return await run_plan(run, plan, work, how or PlanOptions())


async def quick(leaf):
    return {"files": len(leaf.files)}


async def rendezvous(count, width):
    """Subplans that all wait at a gate, to prove that exactly `width` of them run at once."""
    plan, gate = plan_of(count), Gate()

    async def work(leaf):
        await gate.pass_(leaf.id)
        return {"leaf": leaf.id}

    done = asyncio.ensure_future(ran(plan, work, PlanOptions(width=width)))
    for _ in range(1000):  # turns of the loop: all that can start has started by then
        await asyncio.sleep(0)
    held = len(gate.held)
    gate.open_all()
    result = await done
    assert held == width
    assert result.peak == width
    assert [one.leaf for one in result.subplans] == [leaf.id for leaf in plan.leaves]
    assert [one.value for one in result.subplans] == [{"leaf": leaf.id} for leaf in plan.leaves]
    assert result.ok  # none was rejected


async def test_fifteen_at_ten_all_complete_and_the_peak_is_ten():
    await rendezvous(15, 10)


async def test_fifty_at_fifty():
    await rendezvous(50, 50)


@pytest.mark.parametrize("width", [1, 9, 11, 15])
async def test_a_serial_and_an_unbounded_scheduler_fail_the_test_of_fifteen_at_ten(
    width, monkeypatch
):
    real = Run.map
    monkeypatch.setattr(
        Run, "map", lambda *given, **named: real(*given, **{**named, "width": width})
    )
    with pytest.raises(AssertionError):
        await rendezvous(15, 10)


async def test_one_at_a_time_ends_on_a_tree_of_depth_four():
    plan = decompose(Inventory.of(large_layout()))
    assert plan.max_depth_reached >= 4
    result = await ran(plan, quick, PlanOptions(width=1))
    assert (result.ok, result.peak) == (True, 1)
    assert sum(one.value["files"] for one in result.subplans) == len(large_layout())


@pytest.mark.parametrize("width", [1, 5, 50, 80])
async def test_any_width_gives_the_same(width):
    plan = plan_of(60)
    result = await ran(plan, quick, PlanOptions(width=width))
    assert [one.value for one in result.subplans] == [{"files": 3}] * 60


async def test_one_failure_loses_no_other_and_all_errors_are_told():
    plan = plan_of(6)
    bad = {plan.leaves[1].id, plan.leaves[4].id}

    async def work(leaf):
        if leaf.id in bad:
            raise ValueError(f"no {leaf.id}")
        return {}

    result = await ran(plan, work, PlanOptions(width=3))
    assert [one.state for one in result.subplans] == [
        "done",
        "failed",
        "done",
        "done",
        "failed",
        "done",
    ]
    assert [one.error for one in result.errors] == [f"no {leaf}" for leaf in sorted(bad)]


async def test_fail_fast_cancels_the_rest():
    plan, gate = plan_of(6), Gate()

    async def work(leaf):
        if leaf.id == plan.leaves[0].id:
            raise ValueError("no")
        await gate.pass_(leaf.id)

    result = await ran(plan, work, PlanOptions(width=3, fail_fast=True))
    assert [one.state for one in result.subplans] == ["failed"] + ["cancelled"] * 5


async def test_fail_fast_starts_nothing_after_the_failure_while_an_earlier_subplan_still_runs():
    plan, gate = plan_of(12), Gate()
    names = [leaf.id for leaf in plan.leaves]

    async def work(leaf):
        await gate.pass_(leaf.id)
        if leaf.id == names[1]:
            raise ValueError("no")
        return {}

    done = asyncio.ensure_future(ran(plan, work, PlanOptions(width=4, fail_fast=True)))
    await gate.wait_for(*names[:4])
    gate.open(names[1])
    for _ in range(1000):  # turns of the loop: all that can start has started by then
        await asyncio.sleep(0)
    assert gate.held == {names[0]}
    gate.open(names[0])
    result = await done
    assert gate.arrived == names[:4]
    assert (result.peak, [one.state for one in result.subplans]) == (
        4,
        ["done", "failed"] + ["cancelled"] * 10,
    )


@pytest.mark.parametrize("store", [None, MemoryStore])
async def test_fail_fast_calls_no_subplan_cancelled_that_is_done(store):
    plan, gate, third = plan_of(6), Gate(), asyncio.Event()
    leaves = [leaf.id for leaf in plan.leaves]

    async def work(leaf):
        if leaf.id == leaves[2]:
            third.set()  # it has the place of the second one, which has ended
        if leaf.id == leaves[0]:
            await third.wait()
            raise ValueError("no")
        if leaf.id != leaves[1]:
            await gate.pass_(leaf.id)
        return {"leaf": leaf.id}

    kept = store() if store else None
    result = await ran(plan, work, PlanOptions(width=2, fail_fast=True), kept)
    assert [one.state for one in result.subplans] == ["failed", "done"] + ["cancelled"] * 4
    assert result.subplans[1].value == {"leaf": leaves[1]}
    if kept is None:
        return

    async def fails(leaf):
        raise ValueError(f"not {leaf.id}")

    again = await ran(
        plan,
        fails,
        PlanOptions(width=1, fail_fast=True),
        kept,
        resume="retry",
        run_id=kept.runs()[0].id,
    )
    assert [one.state for one in again.subplans] == ["failed", "done"] + ["cancelled"] * 4
    assert again.subplans[1].value == {"leaf": leaves[1]}


async def test_attempts_are_one_and_the_retries():
    plan, tried, clock = plan_of(2), [], ManualClock()

    async def work(leaf):
        tried.append(leaf.id)
        raise ValueError("no")

    done = asyncio.ensure_future(ran(plan, work, PlanOptions(width=1, max_retries=2), clock=clock))
    await clock.run_until(done)
    assert [one.attempts for one in done.result().subplans] == [3, 3]
    assert len(tried) == 6


async def test_what_is_needed_comes_first_and_a_failure_blocks_what_needs_it():
    plan = plan_of(4)
    a, b, c, d = (leaf.id for leaf in plan.leaves)
    order = []

    async def work(leaf):
        order.append(leaf.id)
        if leaf.id == c:
            raise ValueError("no")
        return {}

    result = await ran(plan, work, PlanOptions(width=4, needs={a: [c], b: [a], d: []}))
    assert order in ([c, d], [d, c])
    states = {one.leaf: (one.state, one.error) for one in result.subplans}
    assert states[a] == ("blocked", f"it needs {c}, which failed")
    assert states[b] == ("blocked", f"it needs {c}, which failed")
    assert states[d][0] == "done"


async def test_the_longest_chain_goes_first():
    plan = plan_of(4)
    a, b, c, d = (leaf.id for leaf in plan.leaves)
    order = []

    async def work(leaf):
        order.append(leaf.id)
        return {}

    await ran(plan, work, PlanOptions(width=1, needs={a: [d], b: [a], c: []}))
    assert order == [d, a, b, c]


async def test_a_circle_is_refused_before_anything_starts():
    plan = plan_of(2)
    a, b = (leaf.id for leaf in plan.leaves)

    async def work(leaf):
        raise AssertionError("nothing starts")

    with pytest.raises(PlanInvalid, match="in a circle"):
        await ran(plan, work, PlanOptions(needs={a: [b], b: [a]}))


async def test_only_unfinished_subplans_run_again():
    plan, store, started = plan_of(5), MemoryStore(), []

    async def work(leaf):
        started.append(leaf.id)
        if len(started) == 3:
            raise asyncio.CancelledError
        return {}

    with pytest.raises(BaseException):  # noqa: B017, PT011 - however it is cut off
        async with abreast.open_run("p", store=store) as run:
            await asyncio.wait_for(run_plan(run, plan, work, PlanOptions(width=1)), 60)
            raise RuntimeError("cut off")
    before = list(started)
    result = await ran(plan, work, PlanOptions(width=1), store=store, resume="failed", run_id="p-1")
    assert result.ok
    assert set(started[len(before) :]) <= {leaf.id for leaf in plan.leaves} - set(before[:2])


async def test_a_subplan_runs_again_if_its_files_or_what_else_it_depends_on_have_changed():
    store, started = MemoryStore(), []

    async def work(leaf):
        started.append(leaf.id)
        return {}

    async def again(plan, around):
        async with abreast.open_run(
            "p",
            store=store,
            resume="retry" if started else "never",
            run_id="p-1" if started else None,
        ) as run:
            before = len(started)
            assert (await run_plan(run, plan, work, PlanOptions(), around)).ok
            return len(started) - before

    plan = plan_of(5)
    more = decompose(
        Inventory.of([*plan.root.files, "part03/new.py"]), options=Options(min_files=4)
    )
    assert [leaf.id for leaf in more.leaves] == [leaf.id for leaf in plan.leaves]
    assert [
        await again(plan, "a"),
        await again(plan, "a"),
        await again(more, "a"),
        await again(more, "b"),
    ] == [5, 0, 1, 5]


async def test_a_timeout_fails_its_subplan_and_frees_its_place():
    plan, clock = plan_of(4), ManualClock()
    slow = plan.leaves[0].id

    async def work(leaf):
        if leaf.id == slow:
            await asyncio.Event().wait()
        return {}

    done = asyncio.ensure_future(ran(plan, work, PlanOptions(width=1, timeout=30), clock=clock))
    await clock.run_until(done)
    assert [one.state for one in done.result().subplans] == ["failed", "done", "done", "done"]


async def test_each_subplan_holds_one_thing_of_its_pool_and_never_two_the_same():
    plan, held, busy = plan_of(12), [], set()

    async def work(leaf):
        thing = abreast.current().held["trees"]
        assert thing not in busy
        busy.add(thing)
        await asyncio.sleep(0)
        busy.remove(thing)
        held.append(thing)
        return {}

    result = await ran(
        plan,
        work,
        PlanOptions(width=8, hold="trees"),
        lanes={"trees": abreast.Pool(["a", "b", "c"])},
    )
    assert result.ok
    assert set(held) == {"a", "b", "c"}


async def test_a_waiting_parent_holds_no_slot():
    plan = plan_of(3)

    async def nested(depth):
        if depth == 0:
            return 1
        scope = abreast.current().run
        return sum(
            await scope.map(nested, [depth - 1] * 2, width=1, lane="agents", name="deeper").values()
        )

    async def work(leaf):
        return {"leaves": await nested(3)}

    result = await ran(plan, work, PlanOptions(width=1), lanes={"agents": abreast.Slots(1)})
    assert [one.value["leaves"] for one in result.subplans] == [8, 8, 8]
