"""Runs, steps, children, halting, nesting: what a scope promises."""

import asyncio
import contextvars
import gc
import threading

import pytest

import abreast
from abreast.core.errors import Halted, ItemsFailed, KeyReused, TimedOut, WouldBlock
from abreast.run.lifetime import CollectorThreshold
from abreast.testing import Gate, ManualClock, MemoryStore

request_id = contextvars.ContextVar("request_id", default="none")


async def same(item):
    return item


async def outcomes(mapped):
    return [outcome async for outcome in mapped]


async def test_the_same_name_twice_in_one_scope_is_refused():
    async with abreast.open_run("r") as run:
        await run.map(same, [1], width=1).values()
        with pytest.raises(KeyReused, match="'same' already"):
            run.map(same, [1], width=1)
        with pytest.raises(KeyReused):
            await run.step("same", same, 1)
        async with run.child("inner") as child:
            assert await child.map(same, [1], width=1).values() == [1]


async def test_two_items_with_one_key_are_refused():
    async with abreast.open_run("r") as run:
        with pytest.raises(KeyReused, match="two items have the key 'a'"):
            await run.map(same, ["a", "b", "a"], width=3, key=str).values()


@pytest.mark.parametrize("width", [1, 2, 3, 9])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("how", ["key", "item"])
async def test_a_repeated_key_is_an_error_at_any_width_however_long_ago_it_was(width, stored, how):
    async def work(item):
        return item

    names = ["a", *(f"b{number}" for number in range(30)), "a"]
    items = names if how == "key" else [abreast.Item(name, name) for name in names]
    options = {"key": lambda item: item} if how == "key" else {}
    seen = []
    async with abreast.open_run("r", store=MemoryStore() if stored else None) as run:
        with pytest.raises(KeyReused, match="two items have the key 'a'"):
            async for outcome in run.map(work, items, width=width, span=width, **options):
                seen.append(outcome.value)
    assert seen == names[: len(seen)]


@pytest.mark.parametrize("key", [7, "", None.__class__])
async def test_a_key_that_is_no_text_is_refused(key):
    async with abreast.open_run("r") as run:
        with pytest.raises(TypeError, match="a key must be text"):
            await run.map(same, [1], width=1, key=lambda _: key).values()


async def test_items_may_bring_their_own_keys_and_lanes():
    seen = []

    async def work(value):
        here = abreast.current()
        seen.append((here.key, here.lane, here.path))
        return value

    items = [abreast.Item("home", 1), abreast.Item(None, 2, lane="slow"), 3]
    async with abreast.open_run("r", lanes={"slow": abreast.Slots(1)}) as run:
        outcomes = [o async for o in run.map(work, items, width=1)]
    assert [(o.key, o.value, o.lane) for o in outcomes] == [
        ("home", 1, None),
        ("0001", 2, "slow"),
        ("0002", 3, None),
    ]
    assert seen == [
        ("home", None, "r/work/home"),
        ("0001", "slow", "r/work/0001"),
        ("0002", None, "r/work/0002"),
    ]


async def test_slashes_in_names_and_keys_never_collide():
    paths = set()

    async def work(value):
        paths.add(abreast.current().path)

    async with abreast.open_run("a/b") as run:
        await run.map(work, ["x/y", "x%2Fy", "x"], width=1, key=str, name="m/n").values()
    assert len(paths) == 3
    assert paths == {"a%2Fb/m%2Fn/x%2Fy", "a%2Fb/m%2Fn/x%252Fy", "a%2Fb/m%2Fn/x"}


async def test_a_step_gives_its_value_or_raises_its_own_error():
    boom = ValueError("mine")

    def add(left, right):
        return left + right

    async def fail():
        raise boom

    async with abreast.open_run("r") as run:
        assert await run.step("sum", add, 1, 2) == 3
        assert await run.step("same", same, 5) == 5
        with pytest.raises(ValueError, match="mine") as caught:
            await run.step("fail", fail)
    assert caught.value is boom


async def test_raise_gives_the_very_exception_with_its_traceback_at_its_place():
    boom = LookupError("the second")

    async def work(item):
        if item == 1:
            raise boom
        return item

    seen = []
    async with abreast.open_run("r") as run:
        with pytest.raises(LookupError) as caught:
            async for outcome in run.map(work, range(5), width=1, on_error="raise"):
                seen.append(outcome.value)
    assert seen == [0]
    assert caught.value is boom
    assert caught.traceback[-1].name == "work"


async def test_values_raises_one_error_as_itself_and_several_as_one_with_the_first_as_cause():
    async def work(item):
        if item in (1, 3):
            raise LookupError(item)
        return item

    async with abreast.open_run("r") as run:
        with pytest.raises(LookupError):
            await run.map(work, range(3), width=2, name="one").values()
        with pytest.raises(ItemsFailed, match="2 of 5 items") as caught:
            await run.map(work, range(5), width=2, name="two").values()
    assert caught.value.__cause__.args == (1,)
    assert [error.args for error in caught.value.errors] == [(1,), (3,)]


async def test_sys_exit_in_an_item_is_that_items_failure():
    def work(item):
        if item == 1:
            raise SystemExit(3)
        return item

    async with abreast.open_run("r") as run:
        outcomes = [o async for o in run.map(work, range(3), width=2)]
    assert [o.state for o in outcomes] == ["done", "failed", "done"]
    assert outcomes[1].error.code == 3


async def test_each_item_has_its_own_copy_of_the_callers_context():
    gate = Gate()
    request_id.set("caller")

    async def work(item):
        assert request_id.get() == "caller"
        request_id.set(f"item {item}")
        await gate.pass_(item)
        return request_id.get()

    async with abreast.open_run("r") as run, run.map(work, range(3), width=3) as outcomes:
        await gate.wait_for(0, 1, 2)
        gate.open_all()
        assert [o.value async for o in outcomes] == ["item 0", "item 1", "item 2"]
    assert request_id.get() == "caller"


async def test_threads_see_a_copy_of_the_callers_context_too():
    barrier = threading.Barrier(3)
    request_id.set("caller")

    def work(item):
        seen = request_id.get()
        request_id.set(f"item {item}")
        barrier.wait(60)
        return seen, request_id.get(), abreast.current().key

    async with abreast.open_run("r") as run:
        values = await run.map(work, range(3), width=3).values()
    assert values == [("caller", f"item {n}", f"{n:04d}") for n in range(3)]
    assert request_id.get() == "caller"


async def test_the_callers_context_is_unchanged_after_error_and_cancel():
    request_id.set("caller")

    async def work(item):
        request_id.set("changed")
        if item:
            raise LookupError(item)
        await asyncio.get_running_loop().create_future()

    async with abreast.open_run("r") as run:
        async with run.map(work, range(2), width=2) as outcomes:
            await asyncio.sleep(0)
            assert outcomes.peak == 2
    assert request_id.get() == "caller"


async def test_seeds_depend_on_the_path_alone():
    async def work(item):
        for _ in range(3 - item):
            await asyncio.sleep(0)
        return abreast.current().seed

    found = []
    for width in (1, 3):
        async with abreast.open_run("r", seed=5) as run:
            found.append(await run.map(work, range(3), width=width).values())
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


async def test_maps_nest_beneath_items_and_paths_are_disjoint():
    async def leaf(item):
        return abreast.current().path

    async def branch(item):
        return await abreast.current().run.map(leaf, range(2), width=2).values()

    async with abreast.open_run("r") as run:
        found = await run.map(branch, range(2), width=2).values()
    assert found == [[f"r/branch/{b:04d}/leaf/{leaf_:04d}" for leaf_ in range(2)] for b in range(2)]


@pytest.mark.parametrize("slots", [1, 2])
async def test_nesting_on_one_lane_never_deadlocks_and_never_passes_its_limit(slots):
    inside = peak = 0

    async def leaf(item):
        nonlocal inside, peak
        inside += 1
        peak = max(peak, inside)
        await asyncio.sleep(0)
        inside -= 1
        return item

    async def node(depth):
        run = abreast.current().run
        if depth == 0:
            return sum(await run.map(leaf, range(3), width=3, lane="one").values())
        return sum(await run.map(node, [depth - 1] * 2, width=2, lane="one").values())

    lane = abreast.Slots(slots)
    async with abreast.open_run("r", lanes={"one": lane}) as run:
        assert await run.map(node, [3], width=1, lane="one").values() == [8 * 3]
    assert peak == slots
    assert lane.taken == 0
    assert lane.peak <= slots


async def test_an_item_that_waits_for_a_nested_map_lends_its_slot_and_gets_it_back():
    gate, order = Gate(), []

    async def leaf(item):
        await gate.pass_(item)

    async def outer(item):
        await abreast.current().run.map(leaf, [f"leaf of {item}"], width=1).values()
        order.append((item, lane.taken))

    lane = abreast.Slots(1)
    async with abreast.open_run("r", lanes={"one": lane}) as run:
        async with run.map(outer, "ab", width=2, lane="one") as outcomes:
            await gate.wait_for(
                "leaf of a", "leaf of b"
            )  # both wait beneath, so neither holds the only slot
            gate.open_all()
            assert len([o async for o in outcomes]) == 2
    assert order == [("a", 1), ("b", 1)]
    assert lane.taken == 0


async def test_a_pool_hands_each_item_its_own_thing():
    gate, held = Gate(), {}

    async def work(item):
        held[item] = abreast.current().held["tree"]
        await gate.pass_(item)

    pool = abreast.Pool(["north", "south"])
    async with abreast.open_run("r", lanes={"tree": pool}) as run:
        async with run.map(work, range(4), width=4, hold="tree") as outcomes:
            await gate.wait_for(0, 1)
            assert held == {0: "north", 1: "south"}
            gate.open(1)
            await gate.wait_for(2)
            assert held[2] == "south"
            gate.open_all()
            assert len([o async for o in outcomes]) == 4
    assert pool.peak == 2
    assert repr(pool) == "<Pool 0/2 out>"


async def test_a_pool_gets_everything_back_after_cancellation():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    pool = abreast.Pool(["a", "b"])
    async with abreast.open_run("r", lanes={"tree": pool}) as run:
        async with run.map(work, range(4), width=4, hold="tree"):
            await gate.wait_for(0, 1)
    assert repr(pool) == "<Pool 0/2 out>"


async def test_a_thing_of_a_pool_cannot_be_held_again_beneath_its_holder():
    async def inner(item):
        return item

    async def outer(item):
        return await abreast.current().run.map(inner, [1], width=1, hold="tree").values()

    async with abreast.open_run("r", lanes={"tree": abreast.Pool(["only"])}) as run:
        outcomes = [o async for o in run.map(outer, [1], width=1, hold="tree")]
    assert "holds a thing of 'tree' already" in str(outcomes[0].error)


async def test_a_child_narrows_lanes_and_its_narrowness_does_not_delay_others():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    async with abreast.open_run("r", lanes={"api": abreast.Slots(3)}) as run:
        async with run.child("narrow", lanes={"api": abreast.Slots(1)}) as child:
            async with (
                child.map(work, ["n0", "n1", "n2"], width=3, lane="api") as inner,
                run.map(work, ["w0", "w1"], width=3, lane="api") as outer,
            ):
                await gate.wait_for("n0", "w0", "w1")
                assert gate.held == {"n0", "w0", "w1"}
                gate.open_all()
                assert len([o async for o in inner]) == 3
                assert len([o async for o in outer]) == 2


async def test_halt_ends_maps_with_its_reason_and_refuses_new_ones():
    gate = Gate()

    async def work(item):
        await gate.pass_(item)

    async with abreast.open_run("r") as run:
        waiting = asyncio.ensure_future(run.map(work, range(9), width=2).values())
        await gate.wait_for(0, 1)
        run.halt("enough of this")
        with pytest.raises(Halted, match="enough of this"):
            await waiting
        with pytest.raises(Halted, match="enough of this"):
            await run.map(same, [1], width=1).values()
    assert gate.arrived == [0, 1]


async def test_halting_from_inside_an_item_ends_it_too():
    async def work(item):
        run.halt("from within")
        await asyncio.get_running_loop().create_future()

    async with abreast.open_run("r") as run:
        with pytest.raises(Halted, match="from within"):
            await run.map(work, range(3), width=1).values()


async def test_a_map_left_open_inside_an_item_ends_with_the_item():
    ended = []

    async def leaf(item):
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(item)

    async def outer(item):
        mapped = abreast.current().run.map(leaf, range(2), width=2)
        await mapped.__aenter__()
        await asyncio.sleep(0)
        return "went on"

    async with abreast.open_run("r") as run:
        assert await run.map(outer, [0], width=1).values() == ["went on"]
        assert sorted(ended) == [0, 1]


async def test_a_timeout_while_what_is_beneath_an_item_ends_loses_nothing():
    clock, tidied = ManualClock(), asyncio.Event()
    ending = asyncio.Event()

    async def leaf(_):
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ending.set()
            await tidied.wait()

    async def outer(item):
        mapped = abreast.current().run.map(leaf, range(1), width=1)
        await mapped.__aenter__()
        await asyncio.sleep(0)
        raise ValueError(item)

    async with abreast.open_run("r", clock=clock) as run:
        done = asyncio.ensure_future(outcomes(run.map(outer, ["it"], width=1, timeout=1.0)))
        await ending.wait()
        await clock.advance(1.0)  # its timer cancels it once more, in the middle of that
        tidied.set()
        [outcome] = await asyncio.wait_for(done, 60)
    assert isinstance(outcome.error, TimedOut)
    assert isinstance(outcome.error.__cause__, ValueError)


async def test_a_map_can_be_iterated_once():
    async with abreast.open_run("r") as run:
        mapped = run.map(same, [1, 2], width=1)
        assert (await anext(mapped)).value == 1
        with pytest.raises(RuntimeError, match="once"):
            aiter(mapped)


async def test_a_run_must_be_entered_before_it_is_used():
    run = abreast.open_run("r")
    with pytest.raises(RuntimeError, match="is not open"):
        run.map(same, [1], width=1)


def test_current_is_only_there_inside_an_item():
    with pytest.raises(RuntimeError, match="only there inside an item"):
        abreast.current()


async def test_a_map_that_is_never_begun_costs_nothing():
    async with abreast.open_run("r") as run:
        mapped = run.map(same, [1], width=1)
        async with run.child("c") as child:
            child.map(same, [1], width=1)
    assert mapped.peak == 0


async def test_the_blocking_door_refuses_to_stop_the_loop_it_waits_for():
    async def work(item):
        return list(abreast.map(lambda x: x, [1], width=1))

    async with abreast.open_run("r") as run:
        outcomes = [o async for o in run.map(work, [1], width=1)]
    assert isinstance(outcomes[0].error, WouldBlock)


async def test_reprs_say_where_things_stand():
    async with abreast.open_run("r", lanes={"a": abreast.Slots(2)}) as run:
        mapped = run.map(same, [1], width=1)
        assert repr(mapped) == "<Map r/same <Window 0/1 executing, 0/4 held, 0 taken, item order>>"
        assert repr(run) == "<Run r, 0 maps open>"
        await mapped.values()
        assert repr(abreast.Slots(2)) == "<Slots 0/2 taken>"


async def test_a_note_of_a_scope_is_an_event_under_its_path_or_a_name_beneath_it():
    store = MemoryStore()

    async def work(item):
        abreast.current().run.note("mine.item", {"item": item})

    async with abreast.open_run("r", store=store) as run:
        run.note("mine.asked", {"of": "x"}, value={"why": [1, 2]}, beneath="a/b")
        await run.map(work, [7], width=1).values()
    asked, item = (event for event in store.events(run.id) if event.kind.startswith("mine."))
    assert (asked.path, asked.data, asked.body) == ("r/a%2Fb", {"of": "x"}, '{"why":[1,2]}')
    assert (item.path, item.data, item.body) == ("r/work/0000", {"item": 7}, None)


async def test_a_run_without_a_journal_encodes_no_note():
    async with abreast.open_run("r") as run:
        run.note("mine", value=object())


async def test_what_current_returns_can_only_be_read():
    async def work(_):
        item = abreast.current()
        for name in ("path", "key", "index", "lane", "attempt", "usage", "seed", "held", "run"):
            with pytest.raises(AttributeError):
                setattr(item, name, None)
        return item.index, item.map_name, repr(item)

    async with abreast.open_run("r") as run:
        [seen] = await run.map(work, [1], width=1).values()
    assert seen == (0, "work", "<item r/work/0000, attempt 1>")


@pytest.fixture
def thresholds():
    """Sets the collector's thresholds, which are restored afterwards."""
    before = gc.get_threshold()
    yield gc.set_threshold
    gc.set_threshold(*before)


async def test_the_collector_searches_less_often_while_it_finds_nothing(thresholds):
    thresholds(700, 10, 10)
    async with abreast.open_run("outer"):
        gc.collect()
        before = gc.get_threshold()[0]
        gc.collect(0)
        assert gc.get_threshold() == (2 * before, 10, 10)
        async with abreast.open_run("beside it"):
            pass
        gc.collect()
        for _ in range(10):
            gc.collect(0)
        assert gc.get_threshold() == (CollectorThreshold.MOST_NEW_OBJECTS, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)
    gc.collect(0)
    assert gc.get_threshold() == (700, 10, 10)


async def test_the_collector_searches_as_often_as_by_default_once_it_finds_garbage(thresholds):
    thresholds(700, 10, 10)
    async with abreast.open_run("a"):
        gc.collect()
        gc.collect(0)
        assert gc.get_threshold()[0] > 700
        for _ in range(100):
            cycle = []
            cycle.append(cycle)
        gc.collect(0)
        assert gc.get_threshold() == (700, 10, 10)


async def test_thresholds_of_the_collector_that_the_program_has_set_are_kept(thresholds):
    thresholds(5_000, 7, 7)
    async with abreast.open_run("a"):
        assert gc.get_threshold() == (5_000, 7, 7)
    thresholds(700, 10, 10)
    async with abreast.open_run("b"):
        thresholds(0, 10, 10)
        gc.collect(0)
        assert gc.get_threshold() == (0, 10, 10)
    assert gc.get_threshold() == (0, 10, 10)
