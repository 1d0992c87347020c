"""Model calls: admitted by their lane, retried, charged once, recorded, never made twice."""

import asyncio
from dataclasses import replace

import pytest

import abreast
from abreast.assembly.names import lane_of
from abreast.core.errors import (
    BudgetSpent,
    ConnectionLost,
    Halted,
    LaneParked,
    PriceUnknown,
    QuotaSpent,
    Refused,
    ServerFault,
    Throttled,
    TimedOut,
)
from abreast.core.events import CALL_STARTED
from abreast.core.outcome import Usage
from abreast.models.lanes import read_lanes
from abreast.models.port import Message, Reply, Request, ToolCall
from abreast.models.price import FlatPrice
from abreast.run.calls.cache import Replay, StoreCache
from abreast.run.calls.journal import digest_of
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller, with_item_seed
from abreast.run.item_state import current_state
from abreast.store.codec import codec
from abreast.testing import Gate, ManualClock, MemoryStore

NO_WAIT = abreast.Retry(3, base=0.0, cap=0.0)


class Echo:
    """Answers with the prompt; does what it is told for the calls to come."""

    def __init__(self, *script, usage=None, gate=None):
        self.name = "test/echo"
        self.script = list(script)
        self.usage = usage or Usage(1, 10, 5)
        self.gate = gate
        self.sent = []
        self.now = self.peak = self.closed = 0

    async def complete(self, request, hear=None):
        text = request.messages[-1].content
        self.sent.append(text)
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            if self.gate is not None:
                await self.gate(text)
            step = self.script.pop(0) if self.script else None
            if step is not None:
                raise step
            if hear is not None:
                hear(text)
            return Reply(text.upper(), usage=self.usage, seconds=0.5)
        finally:
            self.now -= 1

    async def close(self):
        self.closed += 1


def caller(model, *limits, **options):
    return Caller(model, ModelLane("test", limits), **{"retry": NO_WAIT, **options})


async def reached(gate, count):
    """Wait until so many are held, and see that there are no more."""
    for _ in range(1000):
        await asyncio.sleep(0)
        if len(gate.held) == count:
            break
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(gate.held) == count


async def outcomes(mapped):
    return [outcome async for outcome in mapped]


async def answers(run, model, items, **options):
    async def ask(item):
        return (await model.ask(item)).text

    return [
        outcome.value if outcome.ok else type(outcome.error).__name__
        async for outcome in run.map(ask, items, width=options.pop("width", 4), **options)
    ]


# --- limits ---


async def test_a_lane_is_as_wide_as_it_says_whatever_the_map_wants():
    gate = Gate()
    echo = Echo(gate=gate.pass_)
    model = caller(echo, abreast.Slots(4))
    async with abreast.open_run("r") as run:
        done = asyncio.ensure_future(answers(run, model, [f"x{n}" for n in range(20)], width=20))
        await reached(gate, 4)
        gate.open_all()
        assert await done == [f"X{n}" for n in range(20)]
    assert echo.peak == 4


async def test_a_slot_that_the_item_holds_covers_its_calls():
    echo = Echo()
    model = caller(echo)
    async with abreast.open_run("r", lanes={"test": abreast.Slots(1)}) as run:
        assert await answers(run, model, ["a", "b", "c"], lane="test") == ["A", "B", "C"]
    assert echo.peak == 1


async def test_items_that_hold_each_others_lanes_do_not_deadlock():
    first = Caller(Echo(), ModelLane("one"), retry=NO_WAIT)
    other = Caller(Echo(), ModelLane("two"), retry=NO_WAIT)

    async def cross(item):
        model = other if item % 2 else first
        return (await model.ask(str(item))).text

    lanes = {"one": abreast.Slots(1), "two": abreast.Slots(1)}
    async with abreast.open_run("r", lanes=lanes) as run:
        mapped = run.map(cross, range(6), width=6, lane=lambda item: "one" if item % 2 else "two")
        assert await asyncio.wait_for(mapped.values(), 60) == [str(n) for n in range(6)]


async def test_two_hundred_calls_race_for_fifty_requests_and_exactly_fifty_are_sent():
    echo = Echo()
    model = caller(echo)
    with pytest.raises(BudgetSpent):
        async with abreast.open_run("r", budget="50req") as run:
            await answers(run, model, [str(n) for n in range(200)], width=64)
    assert len(echo.sent) == 50


async def test_several_calls_of_an_item_are_each_charged():
    echo = Echo()
    model = caller(echo)

    async def thrice(item):
        for _ in range(3):
            await model.ask(item)

    with pytest.raises(BudgetSpent):
        async with abreast.open_run("r", budget="7req") as run:
            await run.map(thrice, ["a", "b", "c"], width=1).values()
    assert len(echo.sent) == 7


async def test_an_item_that_the_budget_stopped_is_not_recorded_and_goes_on_with_a_raised_cap():
    store, echo = MemoryStore(), Echo()
    model = caller(echo)

    async def twice(item):
        return [(await model.ask(f"{item}{n}")).text for n in range(2)]

    async def once(budget, resume):
        async with abreast.open_run("r", store=store, budget=budget, resume=resume) as run:
            return await run.map(twice, "abc", width=1).values()

    with pytest.raises(BudgetSpent):
        await once("3req", "never")
    assert store.get("r-1").state == "spent"
    assert echo.sent == ["a0", "a1", "b0"]
    assert await once("10req", "must") == [["A0", "A1"], ["B0", "B1"], ["C0", "C1"]]
    assert echo.sent == [
        "a0",
        "a1",
        "b0",
        "b1",
        "c0",
        "c1",
    ]  # b0 was recorded, and is not asked again


async def test_a_token_cap_is_never_passed_by_more_than_what_was_reserved():
    echo = Echo(usage=Usage(1, 10, 90))
    model = caller(echo)
    budget = abreast.Budget(tokens=1000)
    with pytest.raises(BudgetSpent):
        async with abreast.open_run("r", budget=budget) as run:

            async def ask(item):
                return (await model.ask(item, max_tokens=100)).text

            await run.map(ask, [str(n) for n in range(50)], width=16).values()
    assert 800 <= budget.spent["tokens"] <= 1000


async def test_money_needs_a_price_and_is_counted_with_it():
    echo = Echo(usage=Usage(1, 1_000_000, 500_000))
    with pytest.raises(PriceUnknown, match=r"lanes\.test"):
        async with abreast.open_run("r", budget="5usd") as run:
            await run.map(caller(echo).ask, ["x"], width=1).values()
    assert echo.sent == []
    model = caller(echo, price=FlatPrice(1.0, 2.0))
    async with abreast.open_run("r", budget="5usd") as run:
        [outcome] = [o async for o in run.map(model.ask, ["x"], width=1)]
        assert outcome.usage == Usage(1, 1_000_000, 500_000, 2.0)
        assert run.budget.spent["usd"] == 2.0


async def test_an_unknown_price_is_none_and_never_zero():
    async with abreast.open_run("r") as run:
        [outcome] = [o async for o in run.map(caller(Echo()).ask, ["x"], width=1)]
    assert outcome.usage.usd is None


# --- 429, faults, cancellation ---


async def test_a_429_holds_the_whole_lane_and_is_no_attempt():
    clock = ManualClock()
    echo = Echo(Throttled("slow down", retry_after=7.0))
    model = caller(echo, abreast.Slots(1), retry=None)
    async with abreast.open_run("r", clock=clock) as run:
        done = asyncio.ensure_future(answers(run, model, ["a", "b", "c"]))
        await clock.run_until(done)
    assert done.result() == ["A", "B", "C"]
    assert echo.sent == ["a", "a", "b", "c"]  # back at the head of its line
    assert clock.now() == 7.0


async def test_an_episode_of_429s_is_one_hold_however_many_calls_it_hits():
    clock, gate = ManualClock(), Gate()
    echo = Echo(*[Throttled("slow down") for _ in range(8)], gate=gate.pass_)
    model = caller(echo)
    async with abreast.open_run("r", clock=clock) as run:
        done = asyncio.ensure_future(answers(run, model, [str(n) for n in range(8)], width=8))
        await reached(gate, 8)
        gate.open_all()
        await clock.run_until(done)
    assert model.lane.episode == 1
    assert 1.0 <= clock.now() <= 1.25
    assert len(echo.sent) == 16


async def test_the_item_gives_its_slot_back_while_its_call_is_held():
    clock = ManualClock()
    slots = abreast.Slots(1)
    model = caller(Echo(Throttled("slow down", retry_after=5.0)))
    other = []

    async def ask(item):
        if item == "free":
            other.append(clock.now())
            return item
        return (await model.ask(item)).text

    async with abreast.open_run("r", clock=clock, lanes={"test": slots}) as run:
        done = asyncio.ensure_future(run.map(ask, ["held", "free"], width=2, lane="test").values())
        await clock.run_until(done)
    assert done.result() == ["HELD", "free"]
    assert other == [0.0]  # it did not wait for the five seconds


async def test_a_timeout_while_an_items_other_calls_end_loses_nothing():
    clock, gate = ManualClock(), Gate()
    ending, tidied = asyncio.Event(), asyncio.Event()

    class Slow(Echo):
        async def complete(self, request, hear=None):
            try:
                return await super().complete(request, hear)
            finally:
                if request.messages[-1].content == "slow":
                    ending.set()
                    await tidied.wait()

    async def both(_):
        model = caller(Slow(Refused("no"), gate=gate.pass_), retry=None)
        await asyncio.gather(model.ask("slow"), model.ask("bad"))

    async with abreast.open_run("r", store=MemoryStore(), clock=clock) as run:
        done = asyncio.ensure_future(outcomes(run.map(both, [0], width=1, timeout=1.0)))
        await gate.wait_for("slow", "bad")
        gate.open("bad")
        await ending.wait()
        await clock.advance(1.0)  # the item's timer cancels it once more, in the middle of that
        tidied.set()
        [outcome] = await asyncio.wait_for(done, 60)
    assert isinstance(outcome.error, TimedOut)
    assert isinstance(outcome.error.__cause__, Refused)


async def test_a_call_beneath_an_item_beneath_an_item_is_one_request():
    echo = Echo()
    model = caller(echo)

    async def leaf(item):
        return (await model.ask(item)).text

    async def outer(item):
        return await abreast.current().run.step("leaf", leaf, item)

    budget = abreast.Budget(requests=4)
    async with abreast.open_run("r", store=MemoryStore(), budget=budget) as run:
        assert await run.map(outer, "abcd", width=4).values() == list("ABCD")
    assert (budget.spent["requests"], len(echo.sent)) == (4, 4)


async def test_a_spent_quota_parks_the_lane_and_the_run_can_be_resumed():
    store = MemoryStore()

    async def once(model, resume):
        async with abreast.open_run("r", store=store, resume=resume) as run:
            return await answers(run, model, ["a", "b", "c"], width=1)

    parked = Echo(None, QuotaSpent("you have used up your quota"))
    with pytest.raises(
        LaneParked, match="test takes no more requests: you have used up your quota"
    ):
        await once(caller(parked), "never")
    assert store.get("r-1").state == "spent"
    again = Echo()
    assert await once(caller(again), "must") == ["A", "B", "C"]
    assert again.sent == ["b", "c"]


@pytest.mark.parametrize("store", [None, MemoryStore])
async def test_what_was_used_before_a_quota_was_spent_is_counted(store):
    spent = QuotaSpent("you have used up your quota")
    spent.usage = Usage(3, 70, 30)
    opened = None if store is None else store()
    with pytest.raises(LaneParked):
        async with abreast.open_run("r", store=opened, budget="100000tok") as run:
            await run.map(caller(Echo(spent)).ask, ["a"], width=1).values()
    assert run.budget.spent["tokens"] == 100
    if opened is not None:
        [settled] = opened.events("r-1", kinds={"call-settled"})
        facts = {name: settled.data[name] for name in ("state", "parked", "input_tokens")}
        assert facts == {"state": "cancelled", "parked": True, "input_tokens": 70}


async def test_what_a_throttled_call_had_used_is_counted_with_its_reply():
    busy = Throttled("slow down", retry_after=0.0)
    busy.usage = Usage(1, 70, 30)
    async with abreast.open_run("r", budget="100000tok") as run:
        [outcome] = [one async for one in run.map(caller(Echo(busy)).ask, ["a"], width=1)]
    assert (outcome.value.text, outcome.usage.input_tokens) == ("A", 80)
    assert run.budget.spent["tokens"] == 115


@pytest.mark.parametrize("fault", [ServerFault("500"), ConnectionLost("reset")])
async def test_what_passes_is_tried_again_and_what_does_not_is_not(fault):
    echo = Echo(fault, fault, None, Refused("no"))
    model = caller(echo)
    async with abreast.open_run("r") as run:
        assert await answers(run, model, ["a", "b"], width=1) == ["A", "Refused"]
    assert echo.sent == ["a", "a", "a", "b"]


async def test_a_call_that_never_succeeds_fails_with_its_last_error_and_counts_every_request():
    echo = Echo(*[ServerFault(f"fault {n}") for n in range(9)])
    model = caller(echo)
    async with abreast.open_run("r", budget="100req") as run:
        [outcome] = [o async for o in run.map(model.ask, ["a"], width=1)]
        assert run.budget.spent["requests"] == 4
    assert str(outcome.error) == "fault 3"
    assert outcome.usage.requests == 4


async def test_a_stream_that_was_heard_is_not_told_twice():
    class Breaks(Echo):
        async def complete(self, request, hear=None):
            self.sent.append("x")
            hear("half")
            raise ConnectionLost("broke off")

    heard, model = [], caller(Breaks())
    with pytest.raises(ConnectionLost):
        await model.ask("x", hear=heard.append)
    assert heard == ["half"]


async def test_a_cancelled_call_is_recorded_with_what_it_may_have_cost():
    store, gate = MemoryStore(), Gate()
    model = caller(
        Echo(gate=lambda text: gate.pass_(text) if text == "slow" else _nothing()),
        price=FlatPrice(1, 1),
    )

    async def ask(item):
        return (await model.ask(item, max_tokens=100)).text

    async with abreast.open_run("r", store=store) as run:
        async for outcome in run.map(ask, ["quick", "slow"], width=2):
            assert outcome.value == "QUICK"
            await reached(gate, 1)
            break
    settled = {event.data["state"]: event for event in store.events("r-1", kinds={"call-settled"})}
    assert settled["cancelled"].data["estimate"] is True
    assert settled["cancelled"].data["output_tokens"] == 100
    assert settled["cancelled"].data["usd"] > 0


async def _nothing():
    return None


# --- the journal ---


async def test_what_was_asked_is_recorded_once_redacted_and_cut():
    store, echo = MemoryStore(), Echo(ServerFault("busy", status=503))
    model = caller(echo)

    async def work(item):
        return (await model.ask(f"{item} secret " + "x" * 30_000, system="Be secret")).text[:3]

    hide = lambda path, value: value.replace("secret", "***") if isinstance(value, str) else value  # noqa: E731
    async with abreast.open_run("r", store=store, redact=hide) as run, model:
        assert await run.map(work, ["how"], width=1).values() == ["HOW"]
    first, again = store.events("r-1", kinds={CALL_STARTED})
    system, turn = codec.decode(first.body)
    assert system == ["system", "Be ***", 6]
    assert (turn[0], turn[1][:9], len(turn[1]), turn[2]) == ("user", "how *** x", 20_000, 30_008)
    assert again.body is None
    assert "secret" not in str(store.events("r-1"))


async def test_recorded_calls_are_not_made_again_and_identical_ones_are_told_apart():
    store, echo = MemoryStore(), Echo()
    model = caller(echo)
    broken = [True]

    async def work(item):
        replies = [await model.ask(item) for _ in range(2)] + [await model.ask(f"{item}!")]
        if broken:
            abreast.current().run.context.root.halt("crash")
            await asyncio.get_running_loop().create_future()
        return [reply.text for reply in replies]

    with pytest.raises(Halted):
        async with abreast.open_run("r", store=store, seed=1) as run:
            await run.map(work, ["a"], width=1).values()
    assert echo.sent == ["a", "a", "a!"]
    broken.clear()
    async with abreast.open_run("r", store=store, resume="must") as run:
        [outcome] = [o async for o in run.map(work, ["a"], width=1)]
    assert outcome.value == ["A", "A", "A!"]
    assert echo.sent == ["a", "a", "a!"]
    assert outcome.usage == Usage(3, 30, 15, None)  # what it used then
    paths = [event.path for event in store.events("r-1", kinds={"call-settled"})]
    assert len(set(paths)) == 3
    assert all(path.startswith("r/work/0000/call/") for path in paths)


async def test_a_retried_item_asks_anew_and_a_resumed_one_replays_each_attempt():
    store, echo = MemoryStore(), Echo()
    model = caller(echo)

    async def work(item):
        reply = await model.ask(item)
        if abreast.current().attempt < 3:
            raise ConnectionError("the item's own trouble")
        return reply.text

    async with abreast.open_run("r", store=store) as run:
        assert await run.map(work, ["a"], width=1, retry=NO_WAIT).values() == ["A"]
    assert echo.sent == ["a", "a", "a"]


async def test_a_failed_item_that_is_retried_does_not_get_its_old_replies():
    store, echo = MemoryStore(), Echo()
    model = caller(echo)
    bad = [True]

    async def work(item):
        reply = await model.ask(item)
        if bad:
            raise ValueError("not good enough")
        return reply.text

    async with abreast.open_run("r", store=store) as run:
        [outcome] = [o async for o in run.map(work, ["a"], width=1)]
        assert not outcome.ok
    bad.clear()
    async with abreast.open_run("r", store=store, resume="retry") as run:
        assert await run.map(work, ["a"], width=1).values() == ["A"]
    assert echo.sent == ["a", "a"]


async def test_a_recorded_failure_of_a_call_is_raised_again_as_what_it_was():
    store = MemoryStore()
    model = caller(Echo(Refused("not this", status=200, raw="the whole of it")))
    crash = [True]

    async def work(item):
        try:
            await model.ask(item)
        except Refused as error:
            if crash:
                abreast.current().run.context.root.halt("crash")
                await asyncio.get_running_loop().create_future()
            return [str(error), error.status, error.raw]

    with pytest.raises(Halted):
        async with abreast.open_run("r", store=store) as run:
            await run.map(work, ["a"], width=1).values()
    crash.clear()
    async with abreast.open_run("r", store=store, resume="must") as run:
        assert await run.map(work, ["a"], width=1).values() == [
            ["not this", 200, "the whole of it"]
        ]


async def test_a_paid_call_is_on_disk_before_it_is_sent():
    store, seen = MemoryStore(), []

    class Looks(Echo):
        async def complete(self, request, hear=None):
            seen.append(
                [
                    (e.kind, e.data.get("usd"))
                    for e in store.events("r-1")
                    if e.kind == "call-started"
                ]
            )
            return await super().complete(request, hear)

    async with abreast.open_run("r", store=store) as run:
        await answers(run, caller(Looks(), price=FlatPrice(1.0, 1.0)), ["a"])
        await answers(run, caller(Looks(), paid=False), ["b"], name="free")
    assert seen[0][0][0] == "call-started"
    assert seen[0][0][1] > 0
    assert len(seen[1]) == 1  # the free one did not wait for its own


async def test_a_replayed_run_gives_the_same_replies_and_asks_nobody():
    store, echo = MemoryStore(), Echo()

    async def work(item):
        return [(await abreast.current().run.step(f"s{n}", model.ask, item)).text for n in range(2)]

    async def ask(item):
        return (await model.ask(item)).text

    model = caller(echo)
    async with abreast.open_run("r", store=store, seed=5) as run:
        first = await answers(run, model, ["a", "b", "a"])
        deep = await run.map(work, ["x"], width=1).values()
    sent = len(echo.sent)
    replay = Replay(store, "r-1")
    model = caller(replay, paid=False, replays=replay.recorded_name)
    async with abreast.open_run("again", store=store, seed=5) as run:
        assert await answers(run, model, ["a", "b", "a"]) == first
        assert await run.map(work, ["x"], width=1).values() == deep
        assert await answers(run, model, ["never asked"], name="other") == ["NotRecorded"]
    assert len(echo.sent) == sent


async def test_a_cached_reply_is_used_by_another_run_and_costs_nothing():
    store, echo = MemoryStore(), Echo()
    model = caller(echo, cache=StoreCache(store))

    async def ask(item):
        return await model.ask(item, seed=1)

    for name in ("one", "two"):
        async with abreast.open_run(name, store=store) as run:
            outcomes = [o async for o in run.map(ask, ["a", "b"], width=2)]
        assert [o.value.text for o in outcomes] == ["A", "B"]
    assert echo.sent == ["a", "b"]
    assert outcomes[0].usage.requests == 0
    [kept] = store.replies()
    assert (kept.model, kept.count) == ("test/echo", 2)
    assert store.forget_replies(1e12) == 2
    assert store.replies() == []


async def test_a_call_outside_of_any_run_is_limited_too():
    gate = Gate()
    echo = Echo(gate=gate.pass_)
    model = caller(echo, abreast.Slots(2))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(model.ask(str(n))) for n in range(6)]
        await reached(gate, 2)
        gate.open_all()
    assert [task.result().text for task in tasks] == [str(n) for n in range(6)]
    assert echo.peak == 2
    await model.close()
    assert echo.closed == 1


async def test_a_request_with_several_turns_is_asked_as_it_is():
    echo = Echo()
    request = Request(
        (Message("user", "a"), Message("assistant", "b"), Message("user", "c")), system="s"
    )
    assert (await caller(echo).complete(request)).text == "C"


# --- steps and items that hold a provider's lane ---


async def test_an_item_that_holds_a_providers_lane_shares_its_limits_with_its_calls():
    lane = ModelLane("test", [abreast.Slots(1), abreast.Rate(60, per=60, burst=1)])
    echo, clock, began = Echo(), ManualClock(), []

    async def ask(number):
        began.append(clock.now())
        await Caller(echo, lane).ask(f"item {number}")

    async with abreast.open_run("r", clock=clock, lanes={"test": lane}) as run:

        async def all_of_them():
            return [outcome.ok async for outcome in run.map(ask, range(3), lane="test", width=3)]

        done = asyncio.ensure_future(all_of_them())
        await clock.run_until(done)
        assert done.result() == [True, True, True]
    assert echo.peak == 1
    assert began == [
        0.0,
        1.0,
        2.0,
    ]  # the item's own request is its call's: one in a second, not two


async def test_a_step_that_holds_a_governed_lane_leaves_its_calls_to_the_governor(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("ABREAST_STATE", str(tmp_path))
    settings = read_lanes({"openai": {"base_url": "http://127.0.0.1:9/v1", "rpm": 60}}, "here")[
        "openai"
    ]
    lane, seen = lane_of(settings), []
    caller = Caller(Echo(), lane)

    async def step(_):
        item = current_state()
        seen.append((caller.limits_for(item), [hold.limit for hold in item.holds]))

    async with abreast.open_run("r", lanes={"openai": lane}) as run:
        await run.step("a", step, 1, lane="openai")
    [(called, held)] = seen
    assert called == lane.every
    assert lane.governed in called
    assert held == list(lane.held)
    assert [limit.count for limit in held] == [settings.width]


# --- what a turn keeps


KEPT = ({"provider": "test", "item": {"type": "thinking", "signature": "EqQBCg=="}},)
CALL = ToolCall("call_1", "now", "{}")


class Thinker(Echo):
    """Calls a tool with a signed thought, and then says whether it came back."""

    async def complete(self, request, hear=None):
        await Echo.complete(self, request, hear)
        if len(request.messages) == 1:
            return Reply("Hm.", tool_calls=(CALL,), finish="tool_calls", kept=KEPT)
        return Reply("kept" if request.messages[1].kept == KEPT else "lost")


async def tool_loop(model):
    first = Message("user", "Hello")
    reply = await model.complete(Request((first,)))
    answer = Message("tool", "12:00", tool_call_id="call_1")
    return (await model.complete(Request((first, reply.message(), answer)))).text


async def test_what_a_turn_keeps_is_recorded_resumed_replayed_and_cached():
    store, thinker = MemoryStore(), Thinker()
    model = caller(thinker, cache=StoreCache(store))

    async def work(_item):
        return await tool_loop(model)

    async with abreast.open_run("r", store=store, seed=1) as run:
        assert await run.map(work, ["a"], width=1).values() == ["kept"]
    assert await tool_loop(model) == "kept"  # from the cache
    assert await tool_loop(caller(Replay(store, "r-1"))) == "kept"
    assert len(thinker.sent) == 2


async def test_what_a_turn_keeps_is_whole_or_not_there_when_it_is_redacted():
    store = MemoryStore()
    model = caller(Thinker())

    async def work(_item):
        return await tool_loop(model)

    hide = lambda path, value: value.replace("EqQB", "***") if isinstance(value, str) else value  # noqa: E731
    async with abreast.open_run("r", store=store, redact=hide) as run:
        assert await run.map(work, ["a"], width=1).values() == ["lost"]
    assert "EqQB" not in str(store.events("r-1"))
    hide = lambda path, value: value.replace("12:00", "***") if isinstance(value, str) else value  # noqa: E731
    async with abreast.open_run("s", store=store, redact=hide) as run:
        assert await run.map(work, ["a"], width=1).values() == ["kept"]


def test_a_request_has_the_name_of_before_unless_its_turns_keep_something():
    turns = (
        Message("user", "Hi"),
        Message("assistant", "Hm.", (CALL,)),
        Message("tool", "12:00", tool_call_id="call_1"),
    )
    before = digest_of("test/echo", Request(turns, max_tokens=5))
    assert before == "c50c23982da18815"  # in journals of earlier versions
    kept = Message("assistant", "Hm.", (CALL,), kept=KEPT)
    assert digest_of("test/echo", Request((turns[0], kept, turns[2]), max_tokens=5)) != before


def test_a_tool_that_must_be_called_makes_another_request_and_others_keep_their_names():
    tools = ({"name": "find"},)
    free = Request((Message("user", "Hi"),), tools=tools)
    names = [
        digest_of("test/echo", replace(free, tool_choice=choice)) for choice in (None, "*", "find")
    ]
    assert names[0] == "3f4a44c2669e92b5"  # in journals of earlier versions
    assert len(set(names)) == 3
    assert "tool_choice" not in codec.encode(free, "a request")
    assert (
        codec.decode(codec.encode(replace(free, tool_choice="*"), "a request")).tool_choice == "*"
    )


async def test_an_item_s_seed_changes_nothing_else_of_a_request():
    request = Request(
        (Message("user", "Hi"),),
        *("be brief", 0.5, None, ("x",), 9, {"type": "object"}, ({"name": "find"},), {"k": 1}),
        *("low", 7, 3),
        tool_choice="find",
    )

    async def work(_):
        return with_item_seed(request, current_state())

    async with abreast.open_run("r") as run:
        [sent] = await run.map(work, ["a"], width=1).values()
    assert sent.seed is not None
    assert replace(sent, seed=None) == request
    assert sent.shared_prefix == 3
