"""The writer thread: which events share a commit, and who is told when."""

import asyncio
import threading

import pytest

from abreast.core.errors import StoreError, StoreFull
from abreast.core.events import Event
from abreast.store.port import Driver
from abreast.store.writer import (
    WRITER_INTERVALS,
    CommitListener,
    CommitWriter,
    WriterIntervals,
)
from abreast.testing import MemoryStore
from tests.turns import turns


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


def open_writer(store, **intervals):
    row = store.begin(
        "r", kind="script", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 0.0)
    )
    listener = CommitListener(lambda *_: None, lambda _: None, lambda _: None)
    return CommitWriter(store, row, listener, dict, WriterIntervals(**intervals))


def event(seq, kind):
    return Event(seq, kind, "r/x", 0.0, 0.0, None, {}, None)


async def test_an_event_that_nobody_waits_for_rides_along_with_the_next_that_somebody_does():
    store = Watched()
    writer = open_writer(store, alone=3600.0)
    landed = asyncio.get_running_loop().create_future()
    writer.write(event(1, "started"))
    await asyncio.sleep(0)  # a turn of the loop goes by
    await writer.read(lambda: None)
    assert store.commits == []
    writer.write(event(2, "settled"), durable=lambda: landed.set_result(None))
    await landed
    assert store.commits == [["started", "settled"]]
    await writer.close()


async def test_it_does_not_wait_for_company_for_ever():
    store = Watched()
    writer = open_writer(store)
    writer.write(event(1, "started"))
    await asyncio.wait_for(store.committed.wait(), 60)
    assert store.commits == [["started"]]
    await writer.close()


async def test_what_nobody_waited_for_is_on_disk_when_the_scribe_is_closed():
    store = Watched()
    writer = open_writer(store)
    writer.write(event(1, "started"))
    await writer.close()
    assert store.commits == [["started"]]


async def test_written_is_called_at_the_commit_and_durable_after_the_flush():
    flushing, flush = threading.Event(), threading.Event()

    class Slow(Watched):
        def sync(self):
            flushing.set()
            assert flush.wait(60)

    store = Slow()
    writer = open_writer(store)
    loop = asyncio.get_running_loop()
    written, durable = (
        [loop.create_future() for _ in range(3)],
        [loop.create_future() for _ in range(3)],
    )
    for number in range(3):
        tell = lambda future=written[number]: future.set_result(None)  # noqa: E731
        told = lambda future=durable[number]: future.set_result(None)  # noqa: E731
        writer.write(event(number + 1, "settled"), written=tell, durable=told)
        await written[number]  # while the first flush is under way, commits go on
    await asyncio.to_thread(flushing.wait, 30)
    assert not any(future.done() for future in durable)
    flush.set()
    await asyncio.gather(*durable)
    await writer.close()


class Noted(threading.Event):
    """A threading.Event whose `wait` returns at once and records the timeout."""

    def __init__(self):
        super().__init__()
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return True


async def flush(writer, first, count, *, held_up):
    """Write so many events, the first perhaps with `durable` alone, and wait for the disk."""
    told = [asyncio.get_running_loop().create_future() for _ in range(count)]
    for number, future in enumerate(told, first):
        written = (
            None if held_up and number == first else lambda: None
        )  # one that is held up is enough
        writer.write(
            event(number, "settled"), written, lambda future=future: future.set_result(None)
        )
    await asyncio.gather(*told)


@pytest.mark.parametrize("held_up", [False, True])
@pytest.mark.parametrize(("waiting", "waits"), [(1, []), (3, []), (4, [WRITER_INTERVALS.flush])])
async def test_a_flush_waits_for_company_where_many_wait(waiting, waits, held_up):
    writer = open_writer(Watched())
    writer._flush_now = Noted()
    await flush(writer, 1, waiting, held_up=held_up)
    assert writer._flush_now.waits == []
    await flush(writer, waiting + 1, 1, held_up=held_up)
    assert writer._flush_now.waits == waits
    await writer.close()


async def test_flush_soon_ends_the_wait_of_the_flusher():
    writer = open_writer(Watched(), flush=3600.0)
    for first in (1, 7):  # more than once: the first call leaves nothing behind
        await flush(writer, first, 5, held_up=False)
        waits = asyncio.ensure_future(flush(writer, first + 5, 1, held_up=False))
        await asyncio.sleep(0)
        writer.flush_soon()
        await asyncio.wait_for(waits, 60)
    await asyncio.wait_for(writer.close(), 60)


async def test_the_last_flush_waits_for_nobody():
    writer = open_writer(Watched(), flush=3600.0)
    await flush(writer, 1, 5, held_up=False)
    landed = []
    writer.write(event(6, "settled"), lambda: None, lambda: landed.append(6))
    await asyncio.wait_for(writer.close(), 60)
    assert landed == [6]


class Held(Watched):
    """A store whose commits can be held back."""

    def __init__(self):
        super().__init__()
        self.began, self.go_on = threading.Event(), threading.Event()

    def commit(self, run_id, epoch, events, spent):
        self.began.set()
        assert self.go_on.wait(60)
        super().commit(run_id, epoch, events, spent)

    @property
    def sizes(self):
        return [len(commit) for commit in self.commits]


def write(writer, seq, told):
    """Write an event whose place can be given away, and whose outcome is wanted."""
    writer.write(
        event(seq, "settled"), lambda: told.append(seq), lambda: told.append(f"{seq} on disk")
    )


async def test_the_events_of_a_turn_are_committed_together_and_places_are_free_after_it():
    store, told = Held(), []
    writer = open_writer(store)
    writer.write(event(1, "started"))
    write(writer, 2, told)
    write(writer, 3, told)
    assert await asyncio.to_thread(store.began.wait, 30)
    assert told == store.commits == []
    write(writer, 4, told)  # shares the next commit with what is written before the first is done
    await turns(3)
    write(writer, 5, told)
    await turns(3)
    assert told == []
    store.go_on.set()
    await writer.close()
    assert [each for each in told if isinstance(each, int)] == [2, 3, 4, 5]
    assert all(told.index(seq) < told.index(f"{seq} on disk") for seq in (2, 3, 4, 5))
    assert store.sizes == [3, 2]


async def test_who_hurries_while_being_told_does_not_overtake_those_who_are_told_next():
    store, told = Held(), []
    store.go_on.set()
    writer = open_writer(store)

    def first():
        told.append(1)
        writer.flush_soon()
        writer.flush_soon()
        writer.write(event(3, "settled"), lambda: told.append(3))

    writer.write(event(1, "settled"), first)
    writer.write(event(2, "settled"), lambda: told.append(2))
    await writer.read(lambda: None)
    await turns(3)
    await writer.close()
    assert told == [1, 2, 3]
    assert sum(store.sizes) == 3


async def test_after_a_commit_has_failed_nobody_is_told_that_it_was_written():
    class Full(Watched):
        def commit(self, run_id, epoch, events, spent):
            raise StoreFull("no room")

    store, told, failed = Full(), [], asyncio.Event()
    row = store.begin(
        "r", kind="script", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 0.0)
    )
    writer = CommitWriter(
        store, row, CommitListener(lambda *_: None, lambda _: failed.set(), lambda _: None), dict
    )
    write(writer, 1, told)
    await asyncio.wait_for(failed.wait(), 60)
    write(writer, 2, told)
    await turns(3)
    await writer.close()
    assert told == []


async def test_what_is_written_while_the_scribe_closes_is_committed_too():
    store, told = Held(), []
    writer = open_writer(store)
    write(writer, 1, told)
    closing = asyncio.ensure_future(writer.close())
    await turns(3)
    write(writer, 2, told)
    writer.write(event(3, "started"))
    store.go_on.set()
    await asyncio.wait_for(closing, 60)
    assert sum(store.sizes) == 3
    assert {1, "1 on disk", 2, "2 on disk"} == set(told)


async def test_what_only_has_to_survive_a_kill_reaches_the_disk_too():
    synced = asyncio.Event()

    class Noting(Watched):
        def sync(self):
            self.loop.call_soon_threadsafe(synced.set)

    writer = open_writer(Noting(), poll=0.01)
    writer.write(event(1, "call"), written=lambda: None)
    await asyncio.wait_for(synced.wait(), 60)
    await writer.close()


async def test_a_disk_that_can_not_be_flushed_breaks_the_run_once():
    class Full(Watched):
        def sync(self):
            raise StoreFull("no room")

    told, heard = [], []
    store = Full()
    row = store.begin(
        "r", kind="script", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 0.0)
    )
    failed = asyncio.Event()
    writer = CommitWriter(
        store,
        row,
        CommitListener(
            lambda *_: None, lambda error: (told.append(error), failed.set()), lambda _: None
        ),
        dict,
    )
    writer.write(event(1, "settled"), durable=lambda: heard.append(1))
    await asyncio.wait_for(failed.wait(), 60)
    writer.write(event(2, "settled"), durable=lambda: heard.append(2))
    await writer.close()
    assert [str(error) for error in told] == ["no room"]
    assert heard == []


@pytest.mark.parametrize("where", ["commit", "sync"])
async def test_whatever_a_store_raises_the_run_is_told_in_a_sentence_and_nobody_waits_for_ever(
    where,
):
    def fails(*_):
        raise ZeroDivisionError("nobody thought of that")

    store, told, failed = Watched(), [], asyncio.Event()
    setattr(store, where, fails)
    row = store.begin(
        "r", kind="script", seed=1, manifest={}, tags=(), driver=Driver(1, "here", 0.0)
    )
    listener = CommitListener(
        lambda *_: None, lambda error: (told.append(error), failed.set()), lambda _: None
    )
    writer = CommitWriter(store, row, listener, dict)
    writer.write(event(1, "settled"), durable=lambda: told.append("durable"))
    await asyncio.wait_for(failed.wait(), 60)
    await asyncio.wait_for(writer.close(), 60)
    assert [type(error) for error in told] == [StoreError]
    assert str(told[0]) == "memory: can't be used: ZeroDivisionError: nobody thought of that"
    assert isinstance(told[0].__cause__, ZeroDivisionError)


async def test_events_that_are_gathered_share_a_commit_and_a_close_does_not_wait_for_more():
    store, heard = Watched(), []
    writer = open_writer(store)
    writer.gather = 3600.0
    for seq in (1, 2, 3):
        writer.write(event(seq, "settled"), durable=lambda seq=seq: heard.append(seq))
        await asyncio.sleep(0)
    await writer.close()
    assert heard == [1, 2, 3]
    assert [len(commit) for commit in store.commits] == [3]


async def test_an_urgent_event_is_committed_at_once_with_those_that_are_gathered():
    store, done = Watched(), asyncio.Event()
    writer = open_writer(store)
    writer.gather = 3600.0
    writer.write(event(1, "settled"), written=lambda: None)
    await asyncio.sleep(0)
    writer.write(event(2, "started"), written=done.set, urgent=True)
    await asyncio.wait_for(done.wait(), 60)
    assert [len(commit) for commit in store.commits] == [2]
    await writer.close()
