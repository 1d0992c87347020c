"""The one writer thread of a run: commits are grouped, and nobody hears of an outcome before it is on disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TypeAlias, TypeVar

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError, StoreError
from abreast.core.events import Event
from abreast.store.port import Request, RunRow, Store

T = TypeVar("T")

Durable: TypeAlias = Callable[[], None]

_POLL = 0.5  # seconds between two looks at the requests of other processes
_LINGER = 0.05  # seconds an event that nobody waits for may wait for company


@dataclass(slots=True)
class _Batch:
    """Events handed over together, and whom to tell when they are on disk."""

    events: list[Event] = field(default_factory=list)
    durable: list[Durable] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Listener:
    """What the scribe tells its run, always on the loop's thread."""

    committed: Callable[[int, float], None]
    failed: Callable[[AbreastError], None]
    requested: Callable[[Sequence[Request]], None]


class Scribe:
    """Writes a run's events from a thread of its own.

    Events of one turn of the loop go over together; while a commit is on its way to the disk the next batch gathers.
    An event that nobody waits for (most are the start of an item) rides along with the next one that somebody does.
    After a commit has failed nothing more is written: what was acknowledged stays, and the run is told once.
    """

    def __init__(self, store: Store, row: RunRow, listener: Listener, spent: Callable[[], Mapping[str, float]]) -> None:
        """Start the thread; call from inside the running loop."""
        self._store = store
        self._row = row
        self._listener = listener
        self._spent = spent
        self._loop = asyncio.get_running_loop()
        self._open = _Batch()
        self._leaving: asyncio.Handle | None = None  # the open batch goes over then
        self.broken = False
        self._closing = False
        self._queue: SimpleQueue[_Batch | Callable[[], None] | None] = SimpleQueue()
        # A daemon, so that a disk that never answers can't keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=f"abreast-scribe-{row.id}", daemon=True)
        self._thread.start()

    def write(self, event: Event, durable: Durable | None = None) -> None:
        """Have `event` written; `durable` is called on the loop once it is on disk. Never waits."""
        batch = self._open
        batch.events.append(event)
        if durable is not None:
            if not batch.durable:
                self._leave(self._loop.call_soon(self._hand_over))
            batch.durable.append(durable)
        elif self._leaving is None:
            self._leave(self._loop.call_later(_LINGER, self._hand_over))

    async def flush(self) -> None:
        """Wait until everything written so far is on disk; raises the store's error if it can't be."""
        self._hand_over()
        await self.read(lambda: None)

    async def read(self, look: Callable[[], T]) -> T:
        """Do `look` in the writer's thread, after all that was handed over before."""
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
        self._queue.put(None)
        self._thread.join()

    def _leave(self, leaving: asyncio.Handle | None) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self._leaving = leaving

    def _hand_over(self) -> None:
        self._leave(None)
        batch = self._open
        if batch.events:
            self._open = _Batch()
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
                self._look_for_requests()
                looked = SYSTEM_CLOCK.now()

    def _do(self, jobs: list[_Batch | Callable[[], None] | None]) -> bool:
        """Do jobs in order, neighbouring batches as one commit; False once told to end."""
        gathered = _Batch()
        for job in jobs:
            if isinstance(job, _Batch):
                gathered.events += job.events
                gathered.durable += job.durable
                continue
            self._commit(gathered)
            gathered = _Batch()
            if job is None:
                return False
            job()
        self._commit(gathered)
        return True

    def _commit(self, batch: _Batch) -> None:
        if not batch.events or self.broken:
            return
        began = SYSTEM_CLOCK.now()
        try:
            self._store.commit(self._row.id, self._row.epoch, batch.events, self._spent())
        except AbreastError as error:
            self.broken = True
            self._tell(self._listener.failed, error)
            return
        self._tell(self._acknowledge, batch, SYSTEM_CLOCK.now() - began)

    def _acknowledge(self, batch: _Batch, took: float) -> None:
        for durable in batch.durable:
            durable()
        if not self._closing:  # a note about the last batch would need a batch of its own
            self._listener.committed(len(batch.events), took)

    def _look_for_requests(self) -> None:
        try:
            found = self._store.asked(self._row.id)
        except StoreError:
            return  # the next commit says what is wrong; a look must not end a run
        if found:
            self._tell(self._listener.requested, found)


def _unless_done(setter: Callable[[T], None], answer: asyncio.Future[T], value: T) -> None:
    if not answer.done():
        setter(value)
