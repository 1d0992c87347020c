"""The gatherer in virtual time: when it submits, how often it asks, what the quota holds back."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest

from abreast.core.errors import ConnectionLost, RequestRefused, Throttled
from abreast.models.batch.service import BatchAnswer, BatchBounds, BatchStatus
from abreast.models.batch.terms import BatchTerms
from abreast.run.calls.batch.gatherer import Gatherer
from abreast.run.calls.batch.quota import EnqueuedTokens
from abreast.run.calls.batch.record import BatchRecord
from abreast.testing import ManualClock
from abreast.testing.clock import settle


class Service:
    """A provider's batches in memory: each ends when the test says so."""

    name = "lane/m"
    bounds = BatchBounds(50, 10_000)

    def __init__(self, clock):
        self.clock = clock
        self.created = []
        self.asked = []
        self.ended = set()
        self.faults = []
        self.listed_from = 0.0

    async def prepare(self, name, bodies):
        return {"bodies": list(bodies)}

    async def create(self, name, prepared):
        fault = self.faults.pop(0) if self.faults else None
        if fault is None or self.listed_from:
            self.created.append((self.clock.now(), name, prepared["bodies"]))
        if fault is not None:
            raise fault
        return name

    async def find(self, sent, known):
        if self.clock.now() < self.listed_from:
            return None
        return next((name for _, name, _ in self.created if name == sent.name), None)

    async def status(self, upstream):
        self.asked.append(self.clock.now())
        return BatchStatus("ended" if upstream in self.ended else "working")

    async def answers(self, upstream, status):
        bodies = next(bodies for _, name, bodies in self.created if name == upstream)
        return iter([BatchAnswer(place, 200, body) for place, body in enumerate(bodies)])

    async def cancel(self, upstream):
        self.ended.add(upstream)


def gatherer_of(clock, quota=None, **terms):
    service = Service(clock)
    context = SimpleNamespace(journal=None, resumed=False, store=None, writer=None, row=None)
    record = BatchRecord(context, "lane", "lane/m")
    found = Gatherer(service, BatchTerms(**terms), record, clock, EnqueuedTokens(quota))
    return found, service


def waiting(gatherer, count, *, tokens=10, size=10):
    return [
        asyncio.ensure_future(gatherer.answer(f"call{n}", {"n": n}, (size, tokens)))
        for n in range(count)
    ]


async def end_all(gatherer, service, calls):
    service.ended.update(name for _, name, _ in service.created)
    clock = service.clock
    for _ in range(50):
        if all(call.done() for call in calls):
            break
        await clock.advance(gatherer.terms.longest_poll)
        service.ended.update(name for _, name, _ in service.created)
    found = [(await call).body["n"] for call in calls]
    await gatherer.close(cancel=False)
    return found


async def test_a_batch_is_submitted_when_its_first_call_is_old_enough():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, age=30.0)
    calls = waiting(gatherer, 3)
    await clock.advance(29.0)
    assert service.created == []
    await clock.advance(1.0)
    assert [(at, len(bodies)) for at, _, bodies in service.created] == [(30.0, 3)]
    assert await end_all(gatherer, service, calls) == [0, 1, 2]


async def test_a_full_batch_is_submitted_at_once():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, size=4)
    calls = waiting(gatherer, 9)
    await settle()
    assert [len(bodies) for _, _, bodies in service.created] == [4, 4]
    await clock.advance(30.0)
    assert [len(bodies) for _, _, bodies in service.created] == [4, 4, 1]
    assert await end_all(gatherer, service, calls) == list(range(9))


async def test_no_batch_is_larger_than_its_provider_takes():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, size=1000)
    assert gatherer.size == 50
    calls = waiting(gatherer, 20, size=1800)  # with 200 around it: five are 10,000 bytes
    await clock.advance(30.0)
    assert [len(bodies) for _, _, bodies in service.created] == [5, 5, 5, 5]
    assert await end_all(gatherer, service, calls) == list(range(20))


async def test_a_batch_that_is_just_being_submitted_is_cancelled_too():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, size=1)
    create, answered = service.create, asyncio.Event()

    async def create_slowly(name, prepared):
        upstream = await create(name, prepared)
        await answered.wait()
        return upstream

    service.create = create_slowly
    (call,) = waiting(gatherer, 1)
    await settle()
    assert len(service.created) == 1
    closing = asyncio.ensure_future(gatherer.close(cancel=True))
    await settle()
    assert not closing.done()
    answered.set()
    await closing
    assert service.ended == {service.created[0][1]}
    call.cancel()


async def test_the_state_is_asked_for_at_growing_intervals():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, age=0.0, poll=10.0, longest_poll=40.0)
    calls = waiting(gatherer, 1)
    await clock.advance(200.0)
    gaps = [later - earlier for earlier, later in pairwise(service.asked)]
    assert service.asked[0] == 10.0
    assert gaps == [10.0, 15.0, 22.5, 33.75, 40.0, 40.0]
    assert await end_all(gatherer, service, calls) == [0]


async def test_the_quota_holds_back_batches_until_others_have_ended():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, quota=60, age=0.0, poll=10.0)
    calls = waiting(gatherer, 9, tokens=20)
    await clock.advance(100.0)
    assert [len(bodies) for _, _, bodies in service.created] == [3]
    service.ended.add(service.created[0][1])
    await clock.advance(600.0)
    assert [len(bodies) for _, _, bodies in service.created] == [3, 3]
    assert await end_all(gatherer, service, calls) == list(range(9))


async def test_a_batch_of_more_tokens_than_the_quota_goes_alone():
    quota = EnqueuedTokens(10)
    await quota.take(50)
    second = asyncio.ensure_future(quota.take(50))
    await settle()
    assert not second.done()
    quota.give(50)
    await second
    assert quota.used == 50
    third = asyncio.ensure_future(quota.take(1))
    await settle()
    third.cancel()
    await settle()
    quota.give(50)
    assert quota.used == 0
    assert "0/10" in repr(quota)


@pytest.mark.parametrize("fault", [ConnectionLost("gone"), Throttled("slow down", retry_after=50)])
async def test_a_submission_that_fails_is_made_again_when_it_is_certain_that_it_must_be(fault):
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, age=0.0, settle=120.0)
    service.faults = [fault]
    calls = waiting(gatherer, 2)
    await clock.advance(49.0)
    assert service.created == []
    await clock.advance(1000.0)
    ((at, _, _),) = service.created
    assert at >= (50.0 if isinstance(fault, Throttled) else 120.0)
    assert await end_all(gatherer, service, calls) == [0, 1]


async def test_a_batch_that_turns_up_late_in_the_list_is_not_submitted_again():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, age=0.0, settle=120.0)
    service.faults, service.listed_from = [ConnectionLost("gone")], 100.0
    calls = waiting(gatherer, 2)
    await clock.advance(1000.0)
    assert len(service.created) == 1
    assert await end_all(gatherer, service, calls) == [0, 1]


async def test_a_refused_submission_fails_its_calls_and_no_others():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, size=2)
    service.faults = [RequestRefused("no", status=400), None]
    calls = waiting(gatherer, 4)
    await settle()
    for call in calls[:2]:
        with pytest.raises(RequestRefused):
            await call
    assert await end_all(gatherer, service, calls[2:]) == [2, 3]
    assert "0 queued" in repr(gatherer)


async def test_a_call_that_leaves_before_its_batch_is_gathered_is_not_in_it():
    clock = ManualClock()
    gatherer, service = gatherer_of(clock, age=30.0)
    first, *rest = waiting(gatherer, 3)
    await settle()
    first.cancel()
    await clock.advance(30.0)
    assert [body["n"] for body in service.created[0][2]] == [1, 2]
    assert await end_all(gatherer, service, rest) == [1, 2]
