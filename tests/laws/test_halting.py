"""An outcome that ends the map whatever came before it ends all that comes after it, at once."""

import asyncio
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

import abreast
from abreast.core.halting import EndsAt
from abreast.run.map.scheduler import LeftBehind
from abreast.testing import Gate, ManualClock, MemoryStore
from tests.laws.plain import Refused, plain_loop, told, worlds
from tests.properties import tried
from tests.turns import turns

COUNT, WIDTH = 302, 4


@pytest.fixture(params=["in memory", "in a lane", "stored", "observed"])
def opening(request):
    """How a run is opened, so that its items go every way there is."""
    return {
        "in memory": {},
        "in a lane": {"lanes": {"wide": abreast.Slots(1000)}},
        "stored": {"store": MemoryStore()},
        "observed": {"hooks": [lambda event: None]},
    }[request.param]


def laned(opening):
    return {"lane": "wide"} if "lanes" in opening else {}


class Held:
    """Items that wait at a gate; some of them fail behind it. It knows which were cancelled."""

    def __init__(self, *fails):
        self.gate = Gate()
        self.cancelled = []
        self._fails = fails

    async def __call__(self, item):
        try:
            await self.gate.pass_(item)
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        if item in self._fails:
            raise Refused(item)
        return item

    async def until_cancelled(self, *items):
        for _ in range(5000):
            if sorted(self.cancelled) == list(items):
                return
            await asyncio.sleep(0)
        raise AssertionError(
            f"cancelled are {self.cancelled}, not {items}; inside are {sorted(self.gate.held)}"
        )


@pytest.mark.parametrize(
    ("how", "fails"),
    [({"on_error": "halt"}, (1,)), ({"on_error": "raise"}, (1,)), ({"until": 1}, ())],
)
async def test_after_an_outcome_that_ends_the_map_nothing_starts_and_what_runs_is_cancelled(
    opening, how, fails
):
    work = Held(*fails)
    seen, raised = [], None
    async with abreast.open_run("law", **opening) as run:
        mapped = run.map(work, range(COUNT), width=WIDTH, **how, **laned(opening))
        async with mapped as outcomes:
            await work.gate.wait_for(0, 1, 2, 3)
            work.gate.open(1)
            await work.until_cancelled(2, 3)
            assert work.gate.held == {0}  # it comes before, and goes on
            await turns(100)
            assert work.gate.arrived == [0, 1, 2, 3]
            work.gate.open(0)
            try:
                seen.extend([outcome.index async for outcome in outcomes])
            except Refused as error:
                raised = error.args
    assert work.gate.arrived == [0, 1, 2, 3]
    assert mapped.peak == WIDTH
    assert raised == ((1,) if how == {"on_error": "raise"} else None)
    assert seen == {"halt": [0, 1], "raise": [], None: [0]}[how.get("on_error")]


async def test_a_number_of_successes_is_reached_by_those_that_settled_whatever_runs_between_them():
    work = Held()
    async with abreast.open_run("law") as run:
        mapped = run.map(work, range(COUNT), width=6, until=3)
        async with mapped as outcomes:
            await work.gate.wait_for(*range(6))
            work.gate.open(4, 1)
            await work.gate.wait_for(6, 7)
            work.gate.open(3)  # 1, 3 and 4 are three: nothing after 4 counts any more
            await work.until_cancelled(5, 6, 7)
            assert work.gate.held == {0, 2}
            work.gate.open(0)  # now 0, 1 and 3 are: nor does 4
            work.gate.open(2)
            assert [outcome.index async for outcome in outcomes] == [0, 1, 2]
    assert work.gate.arrived == list(range(8))


async def test_a_predicate_is_asked_in_order_so_that_nothing_ends_before_its_turn():
    work = Held(1)
    async with abreast.open_run("law") as run:
        mapped = run.map(work, range(10), width=2, span=10, until=lambda outcome: not outcome.ok)
        async with mapped as outcomes:
            await work.gate.wait_for(0, 1)
            work.gate.open(*range(1, 10))
            await work.gate.wait_for(*range(10))
            work.gate.open(0)
            assert [outcome.index async for outcome in outcomes] == [0, 1]


async def test_items_before_the_end_still_start_when_their_limit_lets_them():
    work, slots = Held(5), {"narrow": abreast.Slots(1), "wide": abreast.Slots(9)}
    async with abreast.open_run("law", lanes=slots) as run:
        lane = lambda item: "narrow" if item < 5 else "wide"  # noqa: E731
        mapped = run.map(work, range(COUNT), width=3, span=20, on_error="halt", lane=lane)
        async with mapped as outcomes:
            await work.gate.wait_for(0, 5, 6)
            work.gate.open(5)
            await work.until_cancelled(6)
            work.gate.open(*range(5))
            assert [outcome.index async for outcome in outcomes] == [0, 1, 2, 3, 4, 5]
    assert sorted(work.gate.arrived) == [0, 1, 2, 3, 4, 5, 6]


async def test_an_item_that_waits_for_its_next_attempt_is_not_tried_again_past_the_end():
    clock, tried, gate = ManualClock(), [], Gate()

    async def work(item):
        tried.append(item)
        if item == 2:
            raise ConnectionError("again")
        await gate.pass_(item)
        if item == 1:
            raise KeyError("for good")

    retry = abreast.Retry(3, base=5.0, cap=5.0)
    async with abreast.open_run("law", clock=clock) as run:
        async with run.map(
            work, range(9), width=3, span=3, on_error="halt", retry=retry
        ) as outcomes:
            await gate.wait_for(0, 1)
            gate.open(1)
            await turns(50)
            await clock.advance(100.0)
            gate.open(0)
            assert [outcome.index async for outcome in outcomes] == [0, 1]
    assert tried == [0, 1, 2]


@pytest.mark.parametrize("pause", [0, 200])
async def test_failures_past_the_end_are_listed_whether_they_were_recorded_before_it_or_after(
    opening, pause
):
    work = Held(1, 3, 4)
    async with abreast.open_run("law", **opening) as run:
        mapped = run.map(work, range(9), width=5, on_error="halt")
        async with mapped as outcomes:
            await work.gate.wait_for(*range(5))
            work.gate.open(3)
            await turns(pause)
            work.gate.open(1)
            work.gate.open(0)
            assert [outcome.index async for outcome in outcomes] == [0, 1]
    assert [loser.index for loser in mapped.losers] == [3]


async def test_a_recorded_failure_counts_when_a_run_goes_on():
    store, gate, again = MemoryStore(), Gate(), []

    async def first(item):
        await gate.pass_(item)
        if item == 2:
            raise Refused(item)
        return item

    async def killed():
        async with abreast.open_run("law", store=store) as run:
            async with run.map(first, range(20), width=3, name="work", on_error="halt"):
                await gate.wait_for(0, 1, 2)
                gate.open(2)
                while not any(event.kind == "item-settled" for event in store.events("law-1")):  # noqa: ASYNC110
                    await asyncio.sleep(0)  # until the writer's thread has it
                raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await killed()

    async def second(item):
        again.append(item)
        return item

    async with abreast.open_run("law", store=store, resume="must") as run:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes = [
                outcome
                async for outcome in run.map(
                    second, range(20), width=5, name="work", on_error="halt"
                )
            ]
    assert [outcome.index for outcome in outcomes] == [0, 1, 2]
    assert again == [0, 1]


async def test_what_ran_past_the_end_is_recorded_as_speculative():
    store, gate = MemoryStore(), Gate()

    async def work(item):
        try:
            await gate.pass_(item)
        except asyncio.CancelledError:
            return "late"
        if item == 1:
            raise Refused(item)
        return item

    async with abreast.open_run("law", store=store) as run:
        async with run.map(work, range(9), width=3, on_error="halt") as outcomes:
            await gate.wait_for(0, 1, 2)
            gate.open(1)
            while gate.held != {0}:  # noqa: ASYNC110 - the suite's own limit ends it
                await asyncio.sleep(0)
            await turns(20)
            gate.open(0)
            assert [outcome.index async for outcome in outcomes] == [0, 1]
    settled = [event for event in store.events("law-1") if event.kind == "item-settled"]
    assert {event.data["index"]: event.data.get("speculative") for event in settled} == {
        0: None,
        1: None,
        2: True,
    }


@pytest.mark.parametrize("how", [{"on_error": "halt"}, {"on_error": "raise"}, {"until": 1}])
async def test_a_callee_that_swallows_its_cancellation_holds_no_map_that_ends(how, opening):
    ready, release, swallowed = asyncio.Event(), asyncio.Event(), []

    async def work(item):
        if item == 1:
            ready.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    swallowed.append(item)
        await ready.wait()
        if "on_error" in how:
            raise Refused(item)
        return item

    async def outer():
        async with abreast.open_run("law", **opening) as run:
            run.context.grace = 0.05
            return [
                outcome
                async for outcome in run.map(work, range(9), width=2, **how, **laned(opening))
            ]

    task = asyncio.ensure_future(outer())
    try:
        with pytest.warns(LeftBehind, match="ignores its cancellation"):
            await asyncio.wait([task], timeout=60)
        assert task.done()
        assert (
            isinstance(task.exception(), Refused)
            if how.get("on_error") == "raise"
            else len(task.result()) == 1
        )
        assert len(swallowed) > 1
    finally:
        release.set()
        await turns(5)


class Rules:
    """An `until` that stops at any of these, and says so beforehand."""

    def __init__(self, *rules):
        self.ends = rules

    def __call__(self, outcome):
        return False


def loop_of(rules, outcomes):
    """The index at which a plain loop over all outcomes ends by these rules."""
    for index in range(len(outcomes)):
        for rule in rules:
            counted = [outcome.index for outcome in outcomes[: index + 1] if rule.counts(outcome)]
            if index in counted and len(counted) >= rule.number and index >= rule.first:
                return index
    return None


@tried(200)
@given(world=worlds(), number=st.integers(1, 4), first=st.integers(0, 6))
def test_thresholds_end_a_map_where_the_plain_loop_does(world, number, first):
    rules = Rules(EndsAt(lambda outcome: not outcome.ok, number, first))

    async def main():
        async with abreast.open_run("law", lanes=world.lane_limits()) as run:
            options = {**world.options(), "until": rules, "on_error": "collect"}
            return [told(outcome) async for outcome in run.map(world.work, world.items, **options)]

    everything, _ = plain_loop(world.items, world.reply, world.used, None, "collect")
    made = [
        abreast.Done(index, key, what) if state == "done" else abreast.Failed(index, key, what)
        for index, key, state, what, _ in everything
    ]
    end = loop_of(rules.ends, made)
    assert asyncio.run(main()) == (everything if end is None else everything[: end + 1])
