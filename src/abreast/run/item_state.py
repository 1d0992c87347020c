"""What is kept of an item while it waits, executes and settles, and what the items of a map share.

Running code sees the item through `abreast.run.current`, which only reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from abreast.core.frozen import record
from abreast.core.item import escape
from abreast.limits.pool import Pool

if TYPE_CHECKING:
    from abreast.core.clock import Timer
    from abreast.core.events import Event
    from abreast.core.outcome import Usage
    from abreast.limits.lane import Lanes
    from abreast.limits.limit import Hold, Limit, Ticket
    from abreast.run.context import RunContext

CURRENT: ContextVar[ItemState | ItemPlace | None] = ContextVar("abreast_current", default=None)


class ItemScope(Protocol):
    """The scope beneath an item, in which its code opens maps."""

    async def settle_maps(self, grace: float) -> None:
        """End the maps left open in this scope and beneath it."""


class WidthPlaces(Protocol):
    """The places of one map's width, which items that wait for a batch give up meanwhile."""

    can_wait: bool
    batch_size: int
    """The largest batch that its items have waited for."""

    @property
    def executing(self) -> int:
        """The items of the map that execute."""

    @property
    def waiting(self) -> int:
        """The items of the map that wait for a batch."""

    def leave(self, item: ItemState, span: int) -> None:
        """Give up the item's place; the map's span is at least `span` from now on."""

    async def come_back(self, item: ItemState) -> None:
        """Wait for a place again."""


class OuterScope(Protocol):
    """The scope in which a map was opened."""

    lanes: Lanes

    def scope_of(self, item: ItemState) -> ItemScope:
        """A new scope beneath an item."""


@record(frozen=True, slots=True)
class MapPlace:
    """What the items of one map share."""

    name: str
    path: str
    single: bool  # a step: its one item has the path of the map
    context: RunContext
    scope: OuterScope
    parent: ItemState | None  # the item that opened the map
    once: bool = False  # its items must not be repeated
    away: WidthPlaces | None = None

    def path_of(self, key: str) -> str:
        """The full path of the item with that key."""
        return self.path if self.single else f"{self.path}/{escape(key)}"


@record(frozen=True, slots=True)
class ItemPlace:
    """The part of an item that can be sent to another process: plain facts, no scope."""

    path: str
    map_name: str
    key: str
    index: int
    attempt: int
    seed: int
    lane: str | None
    held: Mapping[str, object]
    usage: Usage | None = None


class Calls:
    """The calls of one item: how often each request was made, and which replies are recorded."""

    __slots__ = ("attempt", "counts", "known")

    def __init__(self, known: Mapping[str, Event]) -> None:
        """`known` holds the calls that earlier drivers settled, by path."""
        self.attempt = 1
        self.counts: dict[str, int] = {}
        self.known = known

    def count(self, attempt: int, digest: str) -> int:
        """How often this request was made before; each attempt of the item counts anew."""
        if attempt != self.attempt:
            self.attempt = attempt
            self.counts.clear()
        number = self.counts.get(digest, 0)
        self.counts[digest] = number + 1
        return number


class ItemState:
    """An item that was read and is not complete; changed by the modules of `abreast.run`."""

    __slots__ = (
        "_path",
        "admitted",
        "attempt",
        "away",
        "backoff",
        "calls",
        "charged_before",
        "credits",
        "digest",
        "freed",
        "holds",
        "ignores_recorded_calls",
        "index",
        "key",
        "lane",
        "lenders",
        "maps_below",
        "own_tasks",
        "permit",
        "place",
        "reclaiming",
        "returning",
        "scope",
        "service",
        "settling",
        "started",
        "starting",
        "stop_reason",
        "task",
        "ticket",
        "timer",
        "usage",
        "value",
    )

    def __init__(  # noqa: PLR0917 - created a million times, and keywords cost time
        self, place: MapPlace, index: int, key: str, value: Any, lane: str | None, admitted: float
    ) -> None:
        self.place = place
        self.index = index
        self.key = key
        self.value = value
        self.lane = lane
        self.admitted = admitted
        self.attempt = 1
        self.started = 0.0
        self.backoff = 0.0
        self.service: tuple[float, ...] = ()
        self.holds: tuple[Hold, ...] = ()
        self.ticket: Ticket | None = None
        self.permit: Ticket | None = None  # for a lane place taken while executing: `calls.permit`
        self.task: asyncio.Task[None] | None = None
        self.timer: Timer | None = None
        self.stop_reason: str | None = None
        self.usage: Usage | None = None
        self.digest: str | None = None
        self.credits: set[Limit] | None = None
        self.lenders = 0  # calls and maps beneath it that wait while its slots are lent
        self.reclaiming = False  # it waits for the slots that it lent
        self.away = False  # it waits for a batch, without a place in the width
        self.maps_below: tuple[WidthPlaces, ...] = ()  # those that are open
        self.returning: asyncio.Future[None] | None = None  # it waits for a place again
        self.starting = False  # its start is being written to the disk
        self.settling = False  # its outcome is being written to the disk
        self.freed = False  # its place in the window was given to another item
        self.scope: ItemScope | None = None
        self.calls: Calls | None = None  # model calls, also those that an earlier driver recorded
        self.own_tasks: set[asyncio.Task[Any]] | None = None  # of the user's code, in a call
        self.charged_before = False  # an earlier driver was charged for a request beneath it
        self.ignores_recorded_calls = False  # it failed before and is tried again
        self._path: str | None = None

    @property
    def path(self) -> str:
        """The item's full path, such as `summaries/summarise/0007`."""
        if self._path is None:
            self._path = self.place.path_of(self.key)
        return self._path

    @property
    def map_name(self) -> str:
        """The name of its map."""
        return self.place.name

    @property
    def context(self) -> RunContext:
        """The context of its run."""
        return self.place.context

    @property
    def parent(self) -> ItemState | None:
        """The item above it, if its map was opened in one."""
        return self.place.parent

    @property
    def may_repeat(self) -> bool:
        """Whether it may run again, in this attempt, if the machine it runs on is lost."""
        return not self.place.once

    @property
    def seed(self) -> int:
        """The item's own seed, derived from the run's seed and the item's path."""
        return self.place.context.seed_of(self.path)

    @property
    def held(self) -> dict[str, object]:
        """The resources taken from pools, by lane name."""
        return {
            hold.lane: hold.limit.thing(hold.handed)
            for hold in self.holds
            if isinstance(hold.limit, Pool)
        }

    @property
    def attempts(self) -> tuple[int, ...]:
        """Its attempt number, preceded by those of the items above it."""
        above = self.place.parent
        return (self.attempt,) if above is None else (*above.attempts, self.attempt)

    def add_usage(self, used: Usage) -> None:
        """Add the usage of a call of this item, or of an outcome taken from a map beneath it."""
        self.usage = used if self.usage is None else self.usage + used

    def luggage(self) -> Callable[[], object]:
        """A function that sets `current()` in another process to this item's place.

        See `abreast.executors.port.PortableContextValue`.
        """
        return partial(
            _set_current,
            ItemPlace(
                self.path,
                self.map_name,
                self.key,
                self.index,
                self.attempt,
                self.seed,
                self.lane,
                self.held,
                self.usage,
            ),
        )


def _set_current(place: ItemPlace) -> None:
    CURRENT.set(place)


def current_state() -> ItemState | None:
    """The item that the running code works for, when it works in the run's own process."""
    found = CURRENT.get()
    return found if isinstance(found, ItemState) else None
