"""The writer thread: which events share a commit, and who is told when."""

import asyncio

from abreast.core.events import Event
from abreast.store.port import Driver
from abreast.store.scribe import Listener, Scribe
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
