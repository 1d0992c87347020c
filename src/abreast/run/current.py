"""The current item: what running code knows about the item it works for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from abreast.core.events import Plain
from abreast.core.frozen import record
from abreast.limits.pool import Pool

if TYPE_CHECKING:
    from abreast.core.clock import Timer
    from abreast.core.outcome import Usage
    from abreast.limits.limit import Hold, Limit, Ticket
    from abreast.run.calls.journal import Calls
    from abreast.run.map.scheduler import Scheduler
    from abreast.run.run import Run

CURRENT: ContextVar[CurrentItem | ItemPlace | None] = ContextVar("abreast_current", default=None)


@record(frozen=True, slots=True)
class ItemPlace:
    """The part of `current()` that can be sent to another process: plain facts, no scope."""

    path: str
    key: str
    attempt: int
    seed: int
    lane: str | None
    held: Mapping[str, object]

    def note(self, kind: str, **facts: Plain) -> None:
        """Does nothing: there is no journal in this process to write the note into."""

    @property
    def run(self) -> Run:
        """Raises RuntimeError: the run's driver is in another process."""
        raise RuntimeError(
            "this item works in another process than its run; open maps where the run is"
        )


class CurrentItem:
    """The item that the running code works for; `abreast.current()` returns it."""

    # Class defaults instead of fields set one by one: most items never change them, and a map may
    # create millions of items.
    attempt = 1
    started = 0.0
    backoff = 0.0
    service: tuple[float, ...] = ()
    holds: tuple[Hold, ...] = ()
    ticket: Ticket | None = None
    permit: Ticket | None = None  # for a lane place taken while executing: `run.calls.permit`
    task: asyncio.Task[None] | None = None
    timer: Timer | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    digest: str | None = None
    credits: set[Limit] | None = None
    lenders = 0  # calls and maps beneath it that wait while its slots are lent
    reclaiming = False  # it waits for the slots that it lent
    starting = False  # its start is being written to the disk
    settling = False  # its outcome is being written to the disk
    freed = False  # its place in the window was given to another item
    scope: Run | None = None
    calls: Calls | None = None  # model calls, including those that an earlier driver recorded
    own_tasks: set[asyncio.Task[Any]] | None = None  # tasks started by the user's code, in a call
    charged_before = False  # an earlier driver was charged for a request recorded beneath it
    ignores_recorded_calls = False  # it failed before and is tried again
    _path: str | None = None

    def __init__(  # noqa: PLR0917 - created a million times, and keywords cost time
        self,
        scheduler: Scheduler,
        index: int,
        key: str,
        value: Any,
        lane: str | None,
        admitted: float,
    ) -> None:
        """Create an item that was just read and has not started."""
        self.scheduler = scheduler
        self.index = index
        self.key = key
        self.value = value
        self.lane = lane
        self.admitted = admitted

    def __repr__(self) -> str:
        """Show its path and attempt."""
        return f"<item {self.path}, attempt {self.attempt}>"

    @property
    def path(self) -> str:
        """The item's full path, such as `summaries/summarise/0007`."""
        if self._path is None:
            self._path = self.scheduler.path_of(self.key)
        return self._path

    @property
    def seed(self) -> int:
        """The item's own seed, derived from the run's seed and the item's path.

        It is the same in every run with that seed, whatever the run's name or the map's width.
        """
        return self.scheduler.context.seed_of(self.path)

    @property
    def held(self) -> Mapping[str, object]:
        """The resources taken from pools, by lane name."""
        return {
            hold.lane: hold.limit.thing(hold.handed)
            for hold in self.holds
            if isinstance(hold.limit, Pool)
        }

    @property
    def run(self) -> Run:
        """The item as a scope: maps and steps opened in it have paths beneath the item's."""
        if self.scope is None:
            self.scope = self.scheduler.run.scope_of(self)
        return self.scope

    @property
    def attempts(self) -> tuple[int, ...]:
        """Its attempt number, preceded by those of the items above it."""
        above = self.scheduler.parent
        return (self.attempt,) if above is None else (*above.attempts, self.attempt)

    def note(self, kind: str, **facts: Plain) -> None:
        """Add an event of your own to the run's journal, under the item's path.

        It is written with the next commit and doesn't cause one.
        """
        context = self.scheduler.context
        if context.journal is not None:
            emit = functools.partial(
                context.journal.emit, kind, self.path, lane=self.lane, data=facts
            )
            # Events are numbered on the loop's thread, so a worker thread passes the call to it.
            context.loop.call_soon_threadsafe(emit) if _is_worker_thread() else emit()

    def add_usage(self, used: Usage) -> None:
        """Add the usage of a call of this item, or of an outcome taken from a map beneath it."""
        self.usage = used if self.usage is None else self.usage + used

    def place(self) -> ItemPlace:
        """The part of this item that can be sent to another process."""
        return ItemPlace(self.path, self.key, self.attempt, self.seed, self.lane, dict(self.held))

    def luggage(self) -> Callable[[], object]:
        """A function that sets `current()` in another process to this item's place.

        See `abreast.executors.port.PortableContextValue`.
        """
        return partial(_set_current, self.place())


def _set_current(place: ItemPlace) -> None:
    CURRENT.set(place)


def _is_worker_thread() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def current() -> CurrentItem | ItemPlace:
    """The item that the running code works for: `.run .path .key .attempt .held .seed`.

    Raises RuntimeError outside of any item. Inside, `current().run` opens maps and steps beneath
    the item.
    """
    found = CURRENT.get()
    if found is None:
        raise RuntimeError("abreast.current() is only there inside an item of a map")
    return found


def current_item() -> CurrentItem | None:
    """The item that the running code works for, when it works in the run's own process."""
    found = CURRENT.get()
    return found if isinstance(found, CurrentItem) else None
