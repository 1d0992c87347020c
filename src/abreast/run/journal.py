"""Events on their way out: numbered without gaps, to the store's scribe and to whoever observes."""

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

_Beginning: TypeAlias = "tuple[str, float, float, str | None, Facts | None]"

_NO_FACTS: Facts = {}
_MOMENT = (
    0.05  # seconds: once to twice as long must something go on for its beginning to be written
)
_made = (
    tuple.__new__
)  # as a named tuple makes itself, without the call in between: a third of the time
_BACKLOG = 65_536  # events kept for a slow observer; past it new ones are dropped and counted


class Journal:
    """Numbers each event and sends it on.

    There is none where neither a store nor an observer wants events.
    """

    __slots__ = ("_clock", "_old", "_seq", "_timer", "_young", "observers", "writer")

    def __init__(
        self, clock: Clock, writer: CommitWriter | None, observers: Sequence[Observer], seq: int = 0
    ) -> None:
        """Go on from event number `seq`."""
        self._clock = clock
        self._seq = seq
        self._young: dict[str, _Beginning] = {}  # what has begun since the last look
        self._old: dict[str, _Beginning] = {}  # what had begun before it; neither is written
        self._timer: asyncio.TimerHandle | None = None
        self.writer = writer
        self.observers = tuple(Watching(observer) for observer in observers)

    @property
    def seq(self) -> int:
        """The number of the newest event."""
        return self._seq

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
    ) -> None:
        """Record that something happened.

        `written` is called once that survives the end of this process, `durable` once it survives that of the machine;
        without a store both at once.
        """
        self._seq += 1
        clock = self._clock
        event = _made(
            Event, (self._seq, kind, path, clock.now(), clock.wall(), lane, data or _NO_FACTS, body)
        )
        if self.observers:
            for watching in self.observers:
                watching.tell(event)
        if self.writer is not None:
            self.writer.write(event, written, durable)
            return
        if written is not None:
            written()
        if durable is not None:
            durable()

    def begin(self, kind: str, path: str, lane: str | None, data: Facts | None) -> None:
        """Record that something begins: in the store only if it goes on for a moment, for its end says when it began.

        A third of what an item of a durable map costs is this event; most items are short.
        """
        if self.observers or self.writer is None:
            self.emit(kind, path, lane=lane, data=data)
            return
        clock = self._clock
        self._young[path] = (kind, clock.now(), clock.wall(), lane, data)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_MOMENT, self._look)

    def over(self, path: str) -> None:
        """What began there has ended."""
        if self._young.pop(path, None) is None and self._old:
            self._old.pop(path, None)

    def _look(self) -> None:
        """Write what had begun before the last look, and is still going on."""
        for path, (kind, now, wall, lane, data) in self._old.items():
            self._seq += 1
            if self.writer is not None:
                event = _made(
                    Event, (self._seq, kind, path, now, wall, lane, data or _NO_FACTS, None)
                )
                self.writer.write(event, None, None)
        self._old, self._young = self._young, {}
        self._timer = (
            asyncio.get_running_loop().call_later(_MOMENT, self._look) if self._old else None
        )

    def close(self, grace: float) -> None:
        """Let observers see the last events, for `grace` seconds at most each."""
        if self._timer is not None:
            self._timer.cancel()
        for watching in self.observers:
            watching.close(grace)


class Watching:
    """Calls one observer from a thread of its own, in order: it can be slow or raise, the run goes on."""

    def __init__(self, observer: Observer) -> None:
        """Start the thread."""
        self._observer = observer
        self._events: deque[Event | None] = deque()
        self._ready = threading.Semaphore(0)
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="abreast-observer", daemon=True)
        self._thread.start()

    def tell(self, event: Event) -> None:
        """Queue the event; never waits."""
        if len(self._events) >= _BACKLOG:
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
        complained = False
        while True:
            self._ready.acquire()
            event = self._events.popleft()
            if event is None:
                return
            try:
                self._observer(event)
            except Exception:  # noqa: BLE001 - an observer changes nothing, whatever it raises
                if not complained:
                    _log.exception(
                        "an observer raised; the run goes on, and further errors of it are not shown"
                    )
                complained = True
