"""The writer thread: which events share a commit, and who is told when."""

import asyncio
import threading

import pytest

from abreast.core.errors import StoreFull
from abreast.core.events import Event
from abreast.store.port import Driver
from abreast.store.scribe import _GATHER, _LEISURE, Listener, Scribe
from abreast.testing import MemoryStore


class Watched(MemoryStore):
    """A store that tells which events each commit held."""

    def __init__(self):
        super().__init__()
        self.commits = []
        self.committed = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def commit(self, run_id, epoch, events, spent):
        super().commit(run_id, epoch, events, spent)
        self.commits.append([event.kind for event in events])
        self.loop.call_soon_threadsafe(self.committed.set)


def open_scribe(store):
    row = store.begin("r", kind="script", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 0.0))
    return Scribe(store, row, Listener(lambda *_: None, lambda _: None, lambda _: None), dict)


def event(seq, kind):
    return Event(seq, kind, "r/x", 0.0, 0.0, None, {}, None)


async def test_an_event_that_nobody_waits_for_rides_along_with_the_next_that_somebody_does(monkeypatch):
    monkeypatch.setattr("abreast.store.scribe._LINGER", 3600.0)
    store = Watched()
    scribe = open_scribe(store)
    landed = asyncio.get_running_loop().create_future()
    scribe.write(event(1, "started"))
    await asyncio.sleep(0)  # a turn of the loop goes by
    await scribe.read(lambda: None)
    assert store.commits == []
    scribe.write(event(2, "settled"), durable=lambda: landed.set_result(None))
    await landed
    assert store.commits == [["started", "settled"]]
    await scribe.close()


async def test_it_does_not_wait_for_company_for_ever():
    store = Watched()
    scribe = open_scribe(store)
    scribe.write(event(1, "started"))
    await asyncio.wait_for(store.committed.wait(), 30)
    assert store.commits == [["started"]]
    await scribe.close()


async def test_what_nobody_waited_for_is_on_disk_when_the_scribe_is_closed():
    store = Watched()
    scribe = open_scribe(store)
    scribe.write(event(1, "started"))
    await scribe.close()
    assert store.commits == [["started"]]


async def test_who_needs_to_survive_a_kill_is_told_at_the_commit_and_who_speaks_to_the_caller_after_the_flush():
    flushing, flush = threading.Event(), threading.Event()

    class Slow(Watched):
        def sync(self):
            flushing.set()
            assert flush.wait(30)

    store = Slow()
    scribe = open_scribe(store)
    loop = asyncio.get_running_loop()
    written, durable = [loop.create_future() for _ in range(3)], [loop.create_future() for _ in range(3)]
    for number in range(3):
        tell = lambda future=written[number]: future.set_result(None)  # noqa: E731
        told = lambda future=durable[number]: future.set_result(None)  # noqa: E731
        scribe.write(event(number + 1, "settled"), written=tell, durable=told)
        await written[number]  # while the first flush is under way, commits go on
    await asyncio.to_thread(flushing.wait, 30)
    assert not any(future.done() for future in durable)
    flush.set()
    await asyncio.gather(*durable)
    await scribe.close()


class Noted(threading.Event):
    """An event that nobody has to wait for, and that tells for how long they would have."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return True


async def flush(scribe, first, count, *, held_up):
    """Write so many events, the first of which may hold somebody up, and wait until they are on disk."""
    told = [asyncio.get_running_loop().create_future() for _ in range(count)]
    for number, future in enumerate(told, first):
        written = None if held_up and number == first else lambda: None  # one that is held up is enough
        scribe.write(event(number, "settled"), written, lambda future=future: future.set_result(None))
    await asyncio.gather(*told)


@pytest.mark.parametrize(
    ("waiting", "held_up", "waits"),
    [(1, False, []), (2, False, [_LEISURE]), (1, True, []), (3, True, []), (4, True, [_GATHER])],
)
async def test_a_flush_waits_for_company_where_many_wait_and_longer_where_nobody_is_held_up(waiting, held_up, waits):
    scribe = open_scribe(Watched())
    scribe._hurry = Noted()
    await flush(scribe, 1, waiting, held_up=held_up)
    assert scribe._hurry.waits == []
    await flush(scribe, waiting + 1, 1, held_up=held_up)
    assert scribe._hurry.waits == waits
    await scribe.close()


async def test_a_flush_waits_no_longer_when_somebody_is_in_a_hurry(monkeypatch):
    monkeypatch.setattr("abreast.store.scribe._LEISURE", 3600.0)
    scribe = open_scribe(Watched())
    for first in (1, 4):  # more than once: nothing is left of the first hurry
        await flush(scribe, first, 2, held_up=False)
        waits = asyncio.ensure_future(flush(scribe, first + 2, 1, held_up=False))
        scribe.hurry()
        await asyncio.wait_for(waits, 30)
    await asyncio.wait_for(scribe.close(), 30)


async def test_who_is_held_up_does_not_wait_for_those_who_have_time(monkeypatch):
    monkeypatch.setattr("abreast.store.scribe._LEISURE", 3600.0)
    scribe = open_scribe(Watched())
    await flush(scribe, 1, 2, held_up=False)
    leisurely = asyncio.ensure_future(flush(scribe, 3, 1, held_up=False))
    await asyncio.sleep(0)
    await asyncio.wait_for(flush(scribe, 4, 1, held_up=True), 30)
    await asyncio.wait_for(leisurely, 30)
    await scribe.close()


async def test_the_last_flush_waits_for_nobody(monkeypatch):
    monkeypatch.setattr("abreast.store.scribe._LEISURE", 3600.0)
    scribe = open_scribe(Watched())
    await flush(scribe, 1, 2, held_up=False)
    landed = []
    scribe.write(event(3, "settled"), lambda: None, lambda: landed.append(3))
    await asyncio.wait_for(scribe.close(), 30)
    assert landed == [3]


async def test_what_only_has_to_survive_a_kill_reaches_the_disk_too(monkeypatch):
    monkeypatch.setattr("abreast.store.scribe._POLL", 0.01)
    synced = asyncio.Event()

    class Noting(Watched):
        def sync(self):
            self.loop.call_soon_threadsafe(synced.set)

    scribe = open_scribe(Noting())
    scribe.write(event(1, "call"), written=lambda: None)
    await asyncio.wait_for(synced.wait(), 30)
    await scribe.close()


async def test_a_disk_that_can_not_be_flushed_breaks_the_run_once():
    class Full(Watched):
        def sync(self):
            raise StoreFull("no room")

    told, heard = [], []
    store = Full()
    row = store.begin("r", kind="script", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 0.0))
    failed = asyncio.Event()
    scribe = Scribe(
        store, row, Listener(lambda *_: None, lambda error: (told.append(error), failed.set()), lambda _: None), dict
    )
    scribe.write(event(1, "settled"), durable=lambda: heard.append(1))
    await asyncio.wait_for(failed.wait(), 30)
    scribe.write(event(2, "settled"), durable=lambda: heard.append(2))
    await scribe.close()
    assert [str(error) for error in told] == ["no room"]
    assert heard == []
