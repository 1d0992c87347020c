"""Outages: they hold the lane, use up no attempt, and are bounded by a setting of the lane."""

import asyncio
from itertools import pairwise

import pytest

import abreast
from abreast.core.errors import ConnectionLost, LaneParked, RequestRefused, Unavailable
from abreast.core.outcome import Usage
from abreast.models.port import Reply
from abreast.run.calls.lane import ModelLane
from abreast.run.calls.model import Caller
from abreast.testing import ManualClock, MemoryStore
from benchmarks.outages import KINDS, Outage, run

SERVICE = 2.0  # seconds of a call that is answered
REFUSAL = 0.01  # seconds of one that is not


def unavailable(status=503, after=None):
    error = Unavailable("test/x is not available", status=status)
    error.retry_after = after
    return error


def refused():
    error = ConnectionLost("test/x: the connection was lost: refused")
    error.unsent = True
    return error


class Server:
    """A model in virtual time; `fault` gives the error for a time and a prompt, or None."""

    def __init__(self, clock, fault, service=lambda text: SERVICE):
        self.name = "test/x"
        self._clock = clock
        self._fault = fault
        self._service = service
        self.now = 0
        self.sent = []  # time, prompt, calls in flight with it, whether it was answered

    async def complete(self, request, hear=None):
        text, at = request.messages[-1].content, self._clock.now()
        error = self._fault(at, text)
        self.now += 1
        self.sent.append((at, text, self.now, error is None))
        try:
            await self._sleep(self._service(text) if error is None else REFUSAL)
        finally:
            self.now -= 1
        if error is not None:
            raise error
        return Reply(text, usage=Usage(1, 10, 5), seconds=SERVICE)

    async def _sleep(self, seconds):
        woken = asyncio.get_running_loop().create_future()
        self._clock.call_at(
            self._clock.now() + seconds, lambda: woken.done() or woken.set_result(None)
        )
        await woken

    async def close(self):
        pass


def down(start, end, error=unavailable):
    return lambda at, text: error() if start <= at < end else None


async def asked(
    fault, *services, items=256, width=64, retry=0, store=None, outage=600.0, resume="never"
):
    """The outcomes, and the server."""
    clock = ManualClock()
    server = Server(clock, fault, *services)
    lane = ModelLane("test", [abreast.Slots(width)], outage=outage)
    model = Caller(server, lane, retry=abreast.Retry(retry), clock=clock)

    async def ask(item):
        return (await model.ask(str(item))).text

    async def all_of_them():
        async with abreast.open_run("r", clock=clock, store=store, resume=resume) as opened:
            return [outcome async for outcome in opened.map(ask, range(items), width=width)]

    task = asyncio.ensure_future(all_of_them())
    while not task.done():  # a store writes in threads of its own, which no clock knows about
        if clock.next_due is not None:
            await clock.advance(clock.next_due - clock.now())
        else:
            await asyncio.wait([task], timeout=0.001)
    return await task, server


@pytest.mark.parametrize("error", [unavailable, lambda: unavailable(529), refused])
async def test_an_outage_of_half_a_minute_at_width_64_fails_no_item_and_is_no_attempt(error):
    outcomes, server = await asked(down(5, 35, error))
    assert [outcome.value for outcome in outcomes] == [str(item) for item in range(256)]
    assert {outcome.usage.requests for outcome in outcomes} == {1}
    assert {len(outcome.timing.service) for outcome in outcomes} == {1}
    assert max(flying for *_, flying, _ in server.sent) == 64


async def test_while_a_lane_is_held_one_call_at_a_time_tries_it_and_more_follow_slowly():
    _, server = await asked(down(5, 35))
    first = next(at for at, *_, answered in server.sent if not answered)
    held = [call for call in server.sent if call[0] > first + 0.5 and not call[3]]
    assert 3 <= len(held) <= 8
    assert {flying for *_, flying, _ in held} == {1}
    assert len({text for _, text, *_ in held}) > 1
    pauses = [later[0] - earlier[0] for earlier, later in pairwise(held)]
    assert pauses == sorted(pauses)
    opened = next(at for at, *_, answered in server.sent if at > 35 and answered)
    assert opened < 35 + 30
    after = [at - opened for at, *_ in server.sent if at > opened]
    assert sum(at < SERVICE + 1 for at in after) < 16
    assert sum(at < SERVICE + 6 for at in after) == len(after) == 63


async def test_after_an_outage_the_speed_grows_with_each_time_of_an_answer():
    _, server = await asked(down(5, 35), lambda _: 0.1, items=4000)
    opened = next(at for at, *_, answered in server.sent if at > 35 and answered)
    after = [flying for at, _, flying, _ in server.sent if opened < at < opened + 1.0]
    assert max(after) == 64


async def test_an_outage_is_noticed_to_be_over_after_half_its_time_and_ten_seconds_at_most():
    for end in (15, 60):
        _, server = await asked(down(5, end))
        opened = next(at for at, *_, answered in server.sent if at > end and answered)
        assert opened <= end + min(0.5 * (end - 5), 10) + 0.5


async def test_answers_to_calls_from_before_an_outage_do_not_end_it():
    _, server = await asked(down(5, 35), lambda text: 20.0 if int(text) % 2 else SERVICE)
    late = [at for at, *_, answered in server.sent if 7 < at < 35 and not answered]
    assert 2 <= len(late) <= 6


async def test_a_single_503_holds_its_own_call_only():
    failing = {"3", "90"}

    def fault(_, text):
        return unavailable() if text in failing and not failing.discard(text) else None

    outcomes, server = await asked(fault)
    assert all(outcome.ok for outcome in outcomes)
    assert len(server.sent) == 258
    assert server.sent[-1][0] < 256 / 64 * SERVICE + 2


async def test_a_retry_after_holds_the_lane_for_that_long():
    _, server = await asked(down(0, 20, lambda: unavailable(after=25.0)), items=8, width=8)
    assert [at for at, *_ in server.sent[:9]] == [0.0] * 8 + [25.0 + REFUSAL]


async def test_a_lane_that_is_down_for_too_long_is_parked_and_its_run_goes_on_later():
    store = MemoryStore()
    with pytest.raises(
        LaneParked, match=r"down for 60 s, which `outage = 60` under \[lanes.test\]"
    ):
        await asked(down(5, 1e9), store=store, outage=60.0)
    outcomes, server = await asked(down(0, 0), store=store, resume="must")
    assert all(outcome.ok for outcome in outcomes)
    assert len(server.sent) < 256  # what was answered before the outage is recorded


async def test_a_request_that_its_provider_can_never_answer_fails_and_the_others_go_on():
    for width in (1, 4):
        outcomes, _ = await asked(
            lambda _, text: unavailable(502) if text == "2" else None,
            items=5 * width,
            width=width,
            outage=60.0,
        )
        assert [outcome.index for outcome in outcomes if not outcome.ok] == [2]
        assert "it has been so for 60 s, which `outage = 60`" in str(outcomes[2].error)


async def test_a_provider_that_was_never_reached_has_no_outage():
    outcomes, server = await asked(lambda *_: refused(), items=2, width=2, retry=2)
    assert [type(outcome.error) for outcome in outcomes] == [ConnectionLost] * 2
    assert len(server.sent) == 6


async def test_a_provider_that_goes_down_before_its_first_answer_has_an_outage():
    def fault(at, _):
        return ConnectionLost("reset") if at == 0 else refused() if at < 31 else None

    outcomes, _ = await asked(fault, retry=1)
    assert all(outcome.ok for outcome in outcomes)


async def test_any_answer_ends_an_outage():
    def fault(at, text):
        if at < 20:
            return unavailable()
        return RequestRefused("no", status=400) if int(text) < 8 else None

    outcomes, _ = await asked(fault, items=16, width=8)
    assert [outcome.ok for outcome in outcomes] == [False] * 8 + [True] * 8


async def test_without_a_bound_on_outages_a_503_is_an_ordinary_failure():
    outcomes, server = await asked(down(0, 1e9), items=2, width=2, retry=2, outage=0.0)
    assert [type(outcome.error) for outcome in outcomes] == [Unavailable] * 2
    assert len(server.sent) == 6


async def test_a_stream_that_was_heard_is_not_repeated_after_an_outage():
    class Half(Server):
        async def complete(self, request, hear=None):
            hear("half")
            raise unavailable(529)

    clock = ManualClock()
    model = Caller(Half(clock, None), ModelLane("test"), clock=clock)
    heard = []
    with pytest.raises(Unavailable):
        await model.ask("x", hear=heard.append)
    assert heard == ["half"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_outage_of_a_server_fails_no_item(kind):
    outage = Outage(kind, begins=4.0, latency=1.0, governed=kind in ("503", "refused"))
    result = await run(outage, seed=7, width=64, scale=20.0, items=300)
    assert (result.items, result.failed) == (300, 0)
    assert result.requests >= 300
