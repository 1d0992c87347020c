"""Where the running code is: the item it works for, its path, its seed and what it holds."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from abreast.core.events import Plain
from abreast.core.frozen import record

if TYPE_CHECKING:
    from abreast.core.clock import Timer
    from abreast.core.outcome import Usage
    from abreast.limits.limit import Limit
    from abreast.limits.queue import Hold, Ticket
    from abreast.run.calls.journal import Calls
    from abreast.run.map.scheduler import Scheduler
    from abreast.run.run import Run

CURRENT: ContextVar[CurrentItem | ItemPlace | None] = ContextVar("abreast_current", default=None)


@record(frozen=True, slots=True)
class ItemPlace:
    """What of `current()` can travel to another process: plain facts, no scope."""

    path: str
    key: str
    attempt: int
    seed: int
    lane: str | None
    held: Mapping[str, object]

    def note(self, kind: str, **facts: Plain) -> None:
        """Notes are for the run's own process.

        In another there is no journal to write them into.
        """

    @property
    def run(self) -> Run:
        """There is no run here: the driver is in another process."""
        raise RuntimeError(
            "this item works in another process than its run; open maps where the run is"
        )


class CurrentItem:
    """The item that the running code works for; what `abreast.current()` gives."""

    # Defaults of the class rather than fields set one by one: most items never change them, and a
    # map makes millions.
    attempt = 1
    started = 0.0
    backoff = 0.0
    service: tuple[float, ...] = ()
    holds: tuple[Hold, ...] = ()
    ticket: Ticket | None = None
    permit: Ticket | None = (
        # for a place on a lane that it took while it was at work: see `abreast.run.calls.permit`
        None
    )
    task: asyncio.Task[None] | None = None
    timer: Timer | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    digest: str | None = None
    credits: set[Limit] | None = None
    lenders = 0  # how many wait beneath it while its slots are lent
    reclaiming = False  # it waits to have them back
    starting = False  # its start is on the way to the disk
    settling = False  # its outcome is
    freed = False  # its place in the window is another's
    scope: Run | None = None
    calls: Calls | None = None  # to models, those an earlier driver recorded included
    own_tasks: set[asyncio.Task[Any]] | None = None  # tasks of the user's own that are in a call
    charged_before = False  # by an earlier driver, for a request that is recorded beneath it
    afresh = False  # it failed before and is tried again: what its calls said then doesn't count
    _path: str | None = None

    def __init__(  # noqa: PLR0917 - made a million times, and keywords cost
        self,
        scheduler: Scheduler,
        index: int,
        key: str,
        value: Any,
        lane: str | None,
        admitted: float,
    ) -> None:
        """An item just read; nothing of it has happened."""
        self.drive = scheduler
        self.index = index
        self.key = key
        self.value = value
        self.lane = lane
        self.admitted = admitted

    def __repr__(self) -> str:
        """Its path and attempt."""
        return f"<item {self.path}, attempt {self.attempt}>"

    @property
    def path(self) -> str:
        """The item's full path, such as `summaries/summarise/0007`."""
        if self._path is None:
            self._path = self.drive.path_of(self.key)
        return self._path

    @property
    def seed(self) -> int:
        """The item's own seed: the same in every run with the run's seed, by any name and at any width."""
        return self.drive.setting.seed_of(self.path)

    @property
    def held(self) -> Mapping[str, object]:
        """What the pools handed over, by lane name."""
        return {
            hold.lane: hold.limit.thing(hold.handed)
            for hold in self.holds
            if hasattr(hold.limit, "thing")
        }

    @property
    def run(self) -> Run:
        """The item as a scope of its own: maps and steps opened here have paths beneath the item's."""
        if self.scope is None:
            self.scope = self.drive.run.scope_of(self)
        return self.scope

    @property
    def attempts(self) -> tuple[int, ...]:
        """The number of its attempt, after those of the items that it is beneath."""
        above = self.drive.parent
        return (self.attempt,) if above is None else (*above.attempts, self.attempt)

    def note(self, kind: str, **facts: Plain) -> None:
        """Add an event of your own to the run's journal, under the item's path.

        It rides along in the next commit.
        """
        context = self.drive.setting
        if context.journal is not None:
            emit = functools.partial(
                context.journal.emit, kind, self.path, lane=self.lane, data=facts
            )
            # From an item's thread it goes over to the loop's: events are numbered there, one after
            # the other.
            context.loop.call_soon_threadsafe(emit) if _in_a_thread() else emit()

    def add_usage(self, used: Usage) -> None:
        """Count what a call of this item used, or an outcome that it was handed by a map beneath it."""
        self.usage = used if self.usage is None else self.usage + used

    def place(self) -> ItemPlace:
        """What of this can travel to another process."""
        return ItemPlace(self.path, self.key, self.attempt, self.seed, self.lane, dict(self.held))

    def luggage(self) -> Callable[[], object]:
        """The place, on its way to become `current()` in another process: see `abreast.executors.port.Traveller`."""
        return partial(_arrive, self.place())


def _arrive(place: ItemPlace) -> None:
    CURRENT.set(place)


def _in_a_thread() -> bool:
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
