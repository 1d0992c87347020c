"""The journal of a run: numbers events without gaps, sends them to the writer and observers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from abreast.core.clock import Clock
from abreast.core.events import Event, Observer, Plain

if TYPE_CHECKING:
    from abreast.store.writer import CommitWriter

_log = logging.getLogger("abreast")

Facts: TypeAlias = Mapping[str, Plain | list[float]]

# Kind, monotonic time, wall time, lane and data of a start event that is not written yet.
_DelayedStart: TypeAlias = "tuple[str, float, float, str | None, Facts | None]"

_NO_FACTS: Facts = {}
START_EVENT_DELAY = 0.25  # seconds; work is written as started after one to two of these
OBSERVER_QUEUE_EVENTS = 65_536  # kept for a slow observer; later ones are dropped and counted
# What a named tuple's constructor calls; calling it directly takes a third of the time.
_new_tuple = tuple.__new__


class Journal:
    """Numbers each event and sends it to the commit writer and the observers.

    A run with neither a store nor an observer has no journal.
    """

    __slots__ = ("_clock", "_new_starts", "_old_starts", "_timer", "observers", "seq", "writer")

    def __init__(
        self, clock: Clock, writer: CommitWriter | None, observers: Sequence[Observer], seq: int = 0
    ) -> None:
        """Continue after event number `seq`."""
        self._clock = clock
        self.seq = seq  # the number of the newest event
        # Starts not written yet, by path: since the last timer, and before it.
        self._new_starts: dict[str, _DelayedStart] = {}
        self._old_starts: dict[str, _DelayedStart] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.writer = writer
        self.observers = tuple(ObserverThread(observer) for observer in observers)

    def emit(
        self,
        kind: str,
        path: str,
        *,
        lane: str | None = None,
        data: Facts | None = None,
        body: str | None = None,
        written: Callable[[], None] | None = None,
        durable: Callable[[], None] | None = None,
        urgent: bool = False,
    ) -> None:
        """Record an event.

        `written` is called once the event survives the end of this process, `durable` once it
        survives a crash of the machine. Without a store both are called at once. An `urgent` event
        is committed at the end of this turn of the loop, also where others are gathered for longer.
        """
        self.seq += 1
        clock = self._clock
        event = _new_tuple(
            Event, (self.seq, kind, path, clock.now(), clock.wall(), lane, data or _NO_FACTS, body)
        )
        if self.observers:
            for observer in self.observers:
                observer.queue(event)
        if self.writer is not None:
            self.writer.write(event, written, durable, urgent=urgent)
            return
        if written is not None:
            written()
        if durable is not None:
            durable()

    def begin(self, kind: str, path: str, lane: str | None, data: Facts | None) -> None:
        """Record that an attempt starts; the store gets the event only if it runs for a while.

        The event of its end says when it started, so a short attempt needs no start event. That
        event is a third of the cost of an item in a durable map, and most items are short.
        """
        if self.observers or self.writer is None:
            self.emit(kind, path, lane=lane, data=data)
            return
        clock = self._clock
        self._new_starts[path] = (kind, clock.now(), clock.wall(), lane, data)
        if self._timer is None:
            self._schedule_starts()

    def over(self, path: str) -> None:
        """The attempt that started at `path` has ended: its start need not be written."""
        if self._new_starts.pop(path, None) is None and self._old_starts:
            self._old_starts.pop(path, None)

    def _write_old_starts(self) -> None:
        """Write the starts from before the last timer whose attempts still run."""
        for path, (kind, now, wall, lane, data) in self._old_starts.items():
            self.seq += 1
            if self.writer is not None:
                event = _new_tuple(
                    Event, (self.seq, kind, path, now, wall, lane, data or _NO_FACTS, None)
                )
                self.writer.write(event, None, None)
        self._old_starts, self._new_starts = self._new_starts, {}
        self._timer = None
        if self._old_starts:
            self._schedule_starts()

    def _schedule_starts(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            START_EVENT_DELAY, self._write_old_starts
        )

    def close(self, grace: float) -> None:
        """Let observers receive the last events, for `grace` seconds at most each."""
        if self._timer is not None:
            self._timer.cancel()
        for observer in self.observers:
            observer.close(grace)


class ObserverThread:
    """Calls one observer in order from its own thread.

    An observer that is slow or raises doesn't hold up the run.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._events: deque[Event | None] = deque()
        self._ready = threading.Semaphore(0)
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="abreast-observer", daemon=True)
        self._thread.start()

    def queue(self, event: Event) -> None:
        """Queue the event; never waits."""
        if len(self._events) >= OBSERVER_QUEUE_EVENTS:
            self.dropped += 1
            return
        self._events.append(event)
        self._ready.release()

    def close(self, grace: float) -> None:
        """Wait for the observer to catch up, `grace` seconds at most."""
        self._events.append(None)
        self._ready.release()
        self._thread.join(grace)
        if self.dropped:
            _log.warning(
                "an observer was too slow: %d events were not shown to %r",
                self.dropped,
                self._observer,
            )

    def _work(self) -> None:
        has_logged = False
        while True:
            self._ready.acquire()
            event = self._events.popleft()
            if event is None:
                return
            try:
                self._observer(event)
            except Exception:  # noqa: BLE001 - an observer changes nothing, whatever it raises
                if not has_logged:
                    _log.exception(
                        "an observer raised; the run goes on, and further errors of it "
                        "are not shown"
                    )
                has_logged = True
