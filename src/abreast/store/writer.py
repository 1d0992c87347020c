"""The one writer of a run: commits are grouped, and nobody hears of an outcome before it is on disk.

Two threads: one commits, the other flushes what was committed to the disk. What is jotted down at
the end of a turn of the loop, or committed, survives the end of this process, however sudden; a
flush takes many times as long, and only who speaks of it to the caller has to wait for that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError, StoreError
from abreast.core.events import Event
from abreast.core.frozen import record
from abreast.store.port import ControlRequest, RunRow, Store

T = TypeVar("T")

Heard: TypeAlias = Callable[[], None]

_POLL = 0.5  # seconds between two looks at the requests of other processes
# seconds between two flushes when many wait for them: a few flushes for all serve everybody better
_GATHER = 0.004
_CROWD = 4  # that many
_LEISURE = 0.016  # seconds between two commits of what is jotted down already
# events of one turn that are worth a commit: to jot them down first would cost more than the wait
_COMPANY = 16
_LINGER = 0.05  # seconds an event that nobody waits for may wait for company


@record(slots=True)
class _Batch:
    """Events handed over together, and whom to tell when they are on disk."""

    events: list[Event] = field(default_factory=list)
    written: list[Heard] = field(default_factory=list)
    durable: list[Heard] = field(default_factory=list)
    pressing: bool = False
    """Somebody does nothing else until they are on disk."""
    jotted: int = 0
    """So many of the events survive the end of this process already."""
    timed: bool = False
    """It is known when they go over."""

    @property
    def bare(self) -> bool:
        """Whether some of them would not."""
        return self.jotted < len(self.events)


@record(frozen=True, slots=True)
class CommitListener:
    """What the scribe tells its run, always on the loop's thread."""

    committed: Callable[[int, float], None]
    failed: Callable[[AbreastError], None]
    requested: Callable[[Sequence[ControlRequest]], None]


class CommitWriter:
    """Writes a run's events from a thread of its own.

    Events of one turn of the loop are jotted down together, and go over to be committed some
    milliseconds after those before, or at once if somebody waits for the disk and does nothing
    else, or if they can't be jotted down. While a commit is on its way the next batch gathers. An
    event that nobody waits for (most are the start of an item) rides along with the next one that
    somebody does. After a commit has failed nothing more is written: what was acknowledged stays,
    and the run is told once.
    """

    def __init__(
        self,
        store: Store,
        row: RunRow,
        listener: CommitListener,
        spent: Callable[[], Mapping[str, float]],
    ) -> None:
        """Start the thread; call from inside the running loop."""
        self._store = store
        self._row = row
        self._listener = listener
        self._spent = spent
        self._loop = asyncio.get_running_loop()
        self._open = _Batch()
        self._leaving: asyncio.Handle | None = None  # the open batch goes over then
        self._turning = False  # at the end of this turn it is jotted down
        self._left = float("-inf")  # when the last one went over
        # batches on their way that are not jotted down: what comes after them can't be, either
        self._bare = 0
        self.broken = False
        self.failure: AbreastError | None = None
        """What a commit or a flush was refused with, first: nothing was written after that."""
        self._closing = False
        self._unsound = False  # the disk has refused a flush
        self._dirty = False  # something is committed and not on its way to the disk
        self._hurry = threading.Event()  # the flusher has no time to wait for company
        self._queue: SimpleQueue[_Batch | Callable[[], None] | None] = SimpleQueue()
        self._unflushed: SimpleQueue[list[Heard] | threading.Event | None] = SimpleQueue()
        # A daemon, so that a disk that never answers can't keep the process from ending.
        self._thread = threading.Thread(
            target=self._work, name=f"abreast-scribe-{row.id}", daemon=True
        )
        self._thread.start()
        self._flusher = threading.Thread(
            target=self._flush_on, name=f"abreast-flush-{row.id}", daemon=True
        )
        self._flusher.start()

    def write(
        self, event: Event, written: Heard | None = None, durable: Heard | None = None
    ) -> None:
        """Have `event` written. Never waits.

        On the loop `written` is called once it is in the store's file, where it

        survives the end of this process, and `durable` once it is on disk: soon, if that is all
        that is waited for."""  # noqa: D209 - one thought
        batch = self._open
        batch.events.append(event)
        if written is None and durable is None:
            if self._leaving is None:
                self._leave(self._loop.call_later(_LINGER, self._due))
            return
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)
        if written is not None:
            batch.written.append(written)
        if durable is not None:
            batch.durable.append(durable)
            batch.pressing = batch.pressing or written is None

    def hurry(self) -> None:
        """Somebody has nothing left to do but to wait for what was written before to be on disk."""
        self._hand_over()
        self._queue.put(self._hurry.set)

    async def flush(self) -> None:
        """Wait until everything written so far is on disk.

        Raises the store's error if it can't be.
        """
        self._hand_over()
        await self.read(self._store.sync)

    async def read(self, look: Callable[[], T]) -> T:
        """Do `look` in the writer's thread, after all that somebody was told of, or that was handed over before."""
        if self._open.jotted:
            self._hand_over()
        answer: asyncio.Future[T] = self._loop.create_future()

        def job() -> None:
            try:
                found = look()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the asker's
                self._tell(_unless_done, answer.set_exception, answer, error)
            else:
                self._tell(_unless_done, answer.set_result, answer, found)

        self._queue.put(job)
        return await answer

    async def close(self) -> None:
        """Write what is left and end the thread."""
        self._closing = True
        self._hand_over()
        await self.read(lambda: None)
        self._hand_over()  # what was written meanwhile
        self._queue.put(None)
        self._thread.join()
        self._hurry.set()
        self._unflushed.put(None)
        self._flusher.join()
        await asyncio.sleep(0)  # what the two have told last is heard before this ends

    def _leave(self, leaving: asyncio.Handle | None) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self._leaving = leaving

    def _turn(self) -> None:
        """At the end of a turn of the loop: jot its events down, and tell who waits for no more than that."""
        self._turning = False
        batch = self._open
        if batch.pressing or not self._jotted(batch):
            self._hand_over()
            return
        told, batch.written = batch.written, []
        wait = self._left + _LEISURE - self._loop.time()
        if wait <= 0:
            self._hand_over()
        elif not batch.timed:
            batch.timed = True
            self._leave(self._loop.call_later(wait, self._due))
        _call_all(told)

    def _due(self) -> None:
        """It is time for the open batch to go over, jotted down: else what comes after it could not be, for a while."""
        if self._turning:
            self._left = float("-inf")  # at the end of this turn
        else:
            self._jotted(self._open)
            self._hand_over()

    def _jotted(self, batch: _Batch) -> bool:
        """Whether all of the batch would survive the end of this process, now at the latest."""
        fresh = batch.events[batch.jotted :]
        if self._bare or self.broken or len(fresh) >= _COMPANY:
            return False
        if fresh and not self._store.jot(self._row.id, self._row.epoch, fresh, self._spent()):
            return False
        batch.jotted = len(batch.events)
        return True

    def _hand_over(self) -> None:
        self._leave(None)
        batch = self._open
        if batch.events:
            self._open = _Batch()
            self._left = self._loop.time()
            self._bare += batch.bare
            self._queue.put(batch)

    def _tell(self, call: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            self.broken = True

    def _work(self) -> None:
        looked = SYSTEM_CLOCK.now()
        while True:
            try:
                jobs = [self._queue.get(timeout=_POLL)]
            except Empty:
                jobs = []
            while not self._queue.empty():
                jobs.append(self._queue.get())
            if not self._do(jobs):
                return
            if SYSTEM_CLOCK.now() - looked >= _POLL and not self.broken:
                if self._dirty:  # nobody waits for it, but it shall not wait for ever
                    self._dirty = False
                    self._unflushed.put([])
                self._look_for_requests()
                looked = SYSTEM_CLOCK.now()

    def _do(self, jobs: list[_Batch | Callable[[], None] | None]) -> bool:
        """Do jobs in order, neighbouring batches as one commit; False once told to end."""
        gathered: list[_Batch] = []
        for job in jobs:
            if isinstance(job, _Batch):
                gathered.append(job)
                continue
            self._commit(gathered)
            gathered = []
            if job is None:
                return False
            job()
        self._commit(gathered)
        return True

    def _commit(self, batches: Sequence[_Batch]) -> None:
        if not batches or self.broken:
            return
        events = (
            batches[0].events
            if len(batches) == 1
            else [event for batch in batches for event in batch.events]
        )
        began = SYSTEM_CLOCK.now()
        try:
            self._store.commit(self._row.id, self._row.epoch, events, self._spent())
        except Exception as error:  # noqa: BLE001 - without this thread, everybody would wait for ever
            self.broken = True
            flushed = threading.Event()
            self._unflushed.put(flushed)  # what was committed before is told first: it stands
            flushed.wait()
            self._fail(error)
            return
        self._tell(self._acknowledge, batches, len(events), SYSTEM_CLOCK.now() - began)
        waiting = [call for batch in batches for call in batch.durable]
        self._dirty = not waiting
        if waiting:
            self._unflushed.put(waiting)

    def _flush_on(self) -> None:
        """Flush whatever has been committed meanwhile, again and again.

        The thread beside the writer's.
        """
        ended, crowded = False, False
        while not ended:
            jobs = [self._unflushed.get()]
            if crowded:
                self._hurry.wait(_GATHER)
                self._hurry.clear()
            while not self._unflushed.empty():
                jobs.append(self._unflushed.get())
            ended = None in jobs
            waiting = [call for job in jobs if isinstance(job, list) for call in job]
            crowded = len(waiting) >= _CROWD
            if waiting or not ended:
                self._flush(waiting)
            for job in jobs:
                if isinstance(job, threading.Event):
                    job.set()

    def _flush(self, waiting: list[Heard]) -> None:
        if self._unsound:
            return
        try:
            self._store.sync()
        except Exception as error:  # noqa: BLE001 - as above
            self._unsound = self.broken = True
            self._fail(error)
        else:
            self._tell(_call_all, waiting)

    def _fail(self, error: Exception) -> None:
        failure = _in_a_sentence(error, self._store)
        self.failure = self.failure or failure
        self._tell(self._listener.failed, failure)

    def _acknowledge(self, batches: Sequence[_Batch], events: int, took: float) -> None:
        self._bare -= sum(batch.bare for batch in batches)
        for batch in batches:
            _call_all(batch.written)
        if not self._closing:  # a note about the last batch would need a batch of its own
            self._listener.committed(events, took)

    def _look_for_requests(self) -> None:
        try:
            found = self._store.asked(self._row.id)
        except StoreError:
            return  # the next commit says what is wrong; a look must not end a run
        if found:
            self._tell(self._listener.requested, found)


def _in_a_sentence(error: Exception, store: Store) -> AbreastError:
    """What a store raises, or what nobody has thought of as one."""
    if isinstance(error, AbreastError):
        return error
    unknown = StoreError(f"{store.url} can't be used: {type(error).__name__}: {error}")
    unknown.__cause__ = error
    return unknown


def _call_all(calls: list[Heard]) -> None:
    for call in calls:
        call()


def _unless_done(setter: Callable[[T], None], answer: asyncio.Future[T], value: T) -> None:
    if not answer.done():
        setter(value)
