"""The commit writer of a run: groups events into commits, and calls back once they are safe.

Two threads: one commits, one fsyncs. Events that were committed survive a kill of this process: an
item's place is free then. An fsync takes many times as long, and only after it is an outcome given
to the caller.
"""

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
from abreast.store.totals import RunTotals

T = TypeVar("T")

Callback: TypeAlias = Callable[[], None]

MANY_WAITERS = 4  # callbacks of one fsync from which the next one waits for `flush`


@record(frozen=True, slots=True)
class WriterIntervals:
    """How long the commit writer waits for more to write at once, all in seconds."""

    # Between fsyncs while many callbacks wait: fewer fsyncs with more callbacks each are faster for
    # all of them.
    flush: float = 0.004
    alone: float = 0.05  # until an event without callbacks is committed by itself
    poll: float = 0.5  # between checks for requests of other processes


WRITER_INTERVALS = WriterIntervals()


@record(slots=True)
class _Batch:
    events: list[Event] = field(default_factory=list)
    written: list[Callback] = field(default_factory=list)
    durable: list[Callback] = field(default_factory=list)
    is_due: bool = False  # it is queued at the end of this turn of the loop


@record(frozen=True, slots=True)
class CommitListener:
    """The run's callbacks for the commit writer, always called on the loop's thread."""

    committed: Callable[[int, float], None]
    failed: Callable[[AbreastError], None]
    requested: Callable[[Sequence[ControlRequest]], None]


class CommitWriter:
    """Writes a run's events from a thread of its own.

    Events of one turn of the loop are queued together; what is queued while a commit is in progress
    shares the next one. An event without callbacks (most are the start of an item) is committed
    with the next event that has one. After a failed commit nothing more is written: acknowledged
    events stay, and `CommitListener.failed` is called once.
    """

    def __init__(
        self,
        store: Store,
        row: RunRow,
        listener: CommitListener,
        spent: Callable[[], Mapping[str, float]],
        intervals: WriterIntervals = WRITER_INTERVALS,
        *,
        totals: RunTotals | None = None,
    ) -> None:
        """Start both threads; call it from inside the running loop."""
        self._intervals = intervals
        self._totals = totals
        self._store = store
        self._row = row
        self._listener = listener
        self._spent = spent
        self._loop = asyncio.get_running_loop()
        self._batch = _Batch()
        # Seconds for which events wait for others to share their commit, unless they are urgent; 0
        # means until the end of this turn of the loop.
        self.gather = 0.0
        self._commit_timer: asyncio.Handle | None = None  # queues events that may wait
        self.broken = False
        # The first error of a commit or an fsync; nothing was written after it.
        self.failure: AbreastError | None = None
        self._closing = False
        self._flush_failed = False
        self._has_unflushed = False  # committed events that no fsync is requested for
        self._flush_now = threading.Event()  # the flusher must not wait for further callbacks
        self._queue: SimpleQueue[_Batch | Callable[[], None] | None] = SimpleQueue()
        self._unflushed: SimpleQueue[list[Callback] | threading.Event | None] = SimpleQueue()
        # Daemons, so that a disk that hangs can't keep the process from ending.
        self._thread = threading.Thread(
            target=self._run_writer, name=f"abreast-writer-{row.id}", daemon=True
        )
        self._thread.start()
        self._flusher = threading.Thread(
            target=self._run_flusher, name=f"abreast-flush-{row.id}", daemon=True
        )
        self._flusher.start()

    def write(
        self,
        event: Event,
        written: Callback | None = None,
        durable: Callback | None = None,
        *,
        urgent: bool = False,
    ) -> None:
        """Write `event` later; never waits.

        On the loop, `written` is called once the event survives a kill of this process, and
        `durable` once it is on disk. An `urgent` event does not wait for others to `gather`.
        """
        batch = self._batch
        batch.events.append(event)
        if written is not None:
            batch.written.append(written)
        if durable is not None:
            batch.durable.append(durable)
        has_callback = written is not None or durable is not None
        if urgent or (has_callback and not self.gather):
            if not batch.is_due:
                batch.is_due = True
                self._loop.call_soon(self._queue_batch)
        elif self._commit_timer is None:
            wait = self.gather if has_callback else self._intervals.alone
            self._commit_timer = self._loop.call_later(wait, self._queue_batch)

    def flush_soon(self) -> None:
        """Commit and fsync without delay: the caller can't go on before that."""
        self._queue_batch()
        self._queue.put(self._flush_now.set)

    async def flush(self) -> None:
        """Wait until everything written so far is on disk.

        Raises the store's error if that fails.
        """
        self._queue_batch()
        await self.read(self._store.sync)

    async def read(self, look: Callable[[], T]) -> T:
        """Call `look` in the writer's thread, after the commit of all acknowledged events."""
        answer: asyncio.Future[T] = self._loop.create_future()

        def job() -> None:
            try:
                found = look()
            except Exception as error:  # noqa: BLE001 - passed on to the caller
                self._call_on_loop(_set_unless_done, answer.set_exception, answer, error)
            else:
                self._call_on_loop(_set_unless_done, answer.set_result, answer, found)

        self._queue.put(job)
        return await answer

    async def close(self) -> None:
        """Write what is left and end both threads."""
        self._closing = True
        self._queue_batch()
        await self.read(lambda: None)
        self._queue_batch()  # events written meanwhile
        self._queue.put(None)
        self._thread.join()
        self._flush_now.set()
        self._unflushed.put(None)
        self._flusher.join()
        await asyncio.sleep(0)  # let the last callbacks of both threads run first

    def _queue_batch(self) -> None:
        if self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None
        if self._batch.events:
            self._queue.put(self._batch)
            self._batch = _Batch()

    def _call_on_loop(self, call: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is closed
            self.broken = True

    def _run_writer(self) -> None:
        last_poll = SYSTEM_CLOCK.now()
        while True:
            try:
                jobs = [self._queue.get(timeout=self._intervals.poll)]
            except Empty:
                jobs = []
            while not self._queue.empty():
                jobs.append(self._queue.get())
            if not self._run_jobs(jobs):
                return
            if SYSTEM_CLOCK.now() - last_poll >= self._intervals.poll and not self.broken:
                if self._has_unflushed:  # no callback waits for them; flush them anyway
                    self._has_unflushed = False
                    self._unflushed.put([])
                self._look_for_requests()
                last_poll = SYSTEM_CLOCK.now()

    def _run_jobs(self, jobs: list[_Batch | Callable[[], None] | None]) -> bool:
        """Run jobs in order, adjacent batches in one commit; False at the end marker (None)."""
        batches: list[_Batch] = []
        for job in jobs:
            if isinstance(job, _Batch):
                batches.append(job)
                continue
            self._commit(batches)
            batches = []
            if job is None:
                return False
            job()
        self._commit(batches)
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
            spent = self._spent()
            if self._totals is not None:
                spent = {**spent, **self._totals.facts(events)}
            self._store.commit(self._row.id, self._row.epoch, events, spent)
        except Exception as error:  # noqa: BLE001 - if this thread died, callers would wait forever
            self.broken = True
            flushed = threading.Event()
            self._unflushed.put(flushed)  # earlier commits are acknowledged first: they are kept
            flushed.wait()
            self._fail(error)
            return
        self._call_on_loop(self._acknowledge, batches, len(events), SYSTEM_CLOCK.now() - began)
        waiting = [call for batch in batches for call in batch.durable]
        self._has_unflushed = not waiting
        if waiting:
            self._unflushed.put(waiting)

    def _run_flusher(self) -> None:
        """The second thread: fsync what was committed since the last fsync, in a loop."""
        ended, many_wait = False, False
        while not ended:
            jobs = [self._unflushed.get()]
            if many_wait:
                self._flush_now.wait(self._intervals.flush)
                self._flush_now.clear()
            while not self._unflushed.empty():
                jobs.append(self._unflushed.get())
            ended = None in jobs
            waiting = [call for job in jobs if isinstance(job, list) for call in job]
            many_wait = len(waiting) >= MANY_WAITERS
            if waiting or not ended:
                self._flush(waiting)
            for job in jobs:
                if isinstance(job, threading.Event):
                    job.set()

    def _flush(self, waiting: list[Callback]) -> None:
        if self._flush_failed:
            return
        try:
            self._store.sync()
        except Exception as error:  # noqa: BLE001 - if this thread died, callers would wait forever
            self._flush_failed = self.broken = True
            self._fail(error)
        else:
            self._call_on_loop(_call_all, waiting)

    def _fail(self, error: Exception) -> None:
        failure = _as_store_error(error, self._store)
        self.failure = self.failure or failure
        self._call_on_loop(self._listener.failed, failure)

    def _acknowledge(self, batches: Sequence[_Batch], events: int, took: float) -> None:
        for batch in batches:
            _call_all(batch.written)
        if not self._closing:  # an event about the last batch would need a batch itself
            self._listener.committed(events, took)

    def _look_for_requests(self) -> None:
        try:
            found = self._store.asked(self._row.id)
        except StoreError:
            return  # the next commit reports what is wrong; a failed poll must not end a run
        if found:
            self._call_on_loop(self._listener.requested, found)


def _as_store_error(error: Exception, store: Store) -> AbreastError:
    """The error itself if it is abreast's own, else a `StoreError` that wraps it."""
    if isinstance(error, AbreastError):
        return error
    unknown = StoreError(f"{store.url} can't be used: {type(error).__name__}: {error}")
    unknown.__cause__ = error
    return unknown


def _call_all(calls: list[Callback]) -> None:
    for call in calls:
        call()


def _set_unless_done(setter: Callable[[T], None], answer: asyncio.Future[T], value: T) -> None:
    if not answer.done():
        setter(value)
