"""Events: the journal has one frozen record for everything that happens in a run."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

RUN_STARTED: Final = "run-started"
RUN_RESUMED: Final = "run-resumed"
RUN_HALTED: Final = "run-halted"
RUN_ENDED: Final = "run-ended"
MAP_STARTED: Final = "map-started"
MAP_STOPPED: Final = "map-stopped"
MAP_ENDED: Final = "map-ended"
ITEM_READ: Final = "item-read"
ITEMS_COMPLETE: Final = "items-complete"
ITEM_QUEUED: Final = "item-queued"
ITEM_STARTED: Final = "item-started"
ATTEMPT_FAILED: Final = "attempt-failed"
ITEM_SETTLED: Final = "item-settled"
CALL_STARTED: Final = "call-started"
CALL_SETTLED: Final = "call-settled"
LIMIT_WAITED: Final = "limit-waited"
LIMIT_CHANGED: Final = "limit-changed"
BATCH_COMMITTED: Final = "batch-committed"
BATCH_GATHERED: Final = "batch-gathered"
BATCH_SUBMITTED: Final = "batch-submitted"
BATCH_ENDED: Final = "batch-ended"
AGENT_STEP: Final = "agent-step"
"""What an agent does: `number`, `text`, `usd`."""
PARKED: Final = "parked"
"""A fact of `CALL_SETTLED`: a quota has ended the call, which had used something by then."""

Plain: TypeAlias = str | int | float | bool | None


class Event(NamedTuple):
    """Something that happened in a run; hooks get it, and stores keep it."""

    seq: int
    """Counts without gaps within the run."""
    kind: str
    """What happened, such as `item-started` or `item-settled`."""
    path: str
    """Where: the path of the item, map or run."""
    mono: float
    """When, by a clock that never goes back."""
    wall: float
    """When, as the time of day."""
    lane: str | None = None
    """The lane of the item."""
    data: Mapping[str, Plain | list[float]] = MappingProxyType({})
    """A few plain facts."""
    body: str | None = None
    """The encoded value (or error) of an item, if there is one."""


Observer: TypeAlias = Callable[[Event], object]


def items_read(event: Event) -> tuple[int, list[str]]:
    """The items of an `item-read` event, which were read together: first index and texts."""
    index = event.data.get("index")
    return index if isinstance(index, int) else 0, (event.body or "null").split("\n")


def count_read(event: Event) -> int:
    """The number of items in an `item-read` event."""
    count = event.data.get("count", 1)
    return count if isinstance(count, int) else 1
