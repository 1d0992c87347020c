"""Release: decides which outcomes may be given to the caller, and where the map ends.

The scheduler acts on these decisions.
"""

from collections import deque
from typing import Any, NamedTuple

from abreast.core.halting import Halting
from abreast.core.outcome import Outcome
from abreast.core.window import Window
from abreast.run.item_state import ItemState


class Stub(NamedTuple):
    """The place of an outcome that is on disk and not in memory until its turn comes."""

    item: ItemState


class Barrier(NamedTuple):
    """The place of an item that could not start: the map ends here, with this error."""

    error: BaseException


class MapEnd(NamedTuple):
    """The map ends after the item `at`, or (without one) with an error.

    In the second case items under way may finish.
    """

    reason: str
    at: int | None = None
    error: BaseException | None = None


class Fetch(NamedTuple):
    """The next outcomes are on disk and must be read back first."""

    items: tuple[ItemState, ...]


class Release:
    """Ripens outcomes in their order, and checks each once against the stop rule."""

    __slots__ = ("_halting", "foresees", "judges", "ripe", "window")

    def __init__(self, window: Window[Any], halting: Halting[Any]) -> None:
        self.window = window
        self.ripe: deque[Outcome[Any]] = deque()
        self._halting = halting
        self.foresees = halting.foresees and window.order == "item"
        self.judges = not halting.always_goes_on

    def settle(self, outcome: Outcome[Any]) -> int | None:
        """The index after which no item is needed, now that this outcome is known.

        None while that is not decided.
        """
        if not self.foresees:
            return None
        self._halting.settle(outcome)
        return self._halting.end

    def advance(self, ahead: int) -> MapEnd | Fetch | None:
        """Ripen all outcomes whose turn it is; returns what the scheduler must do, if anything."""
        window = self.window
        while window.settled and (outcome := window.ripen()) is not None:
            if type(outcome) is Stub:
                window.unripen(outcome.item.index, outcome)
                stubs = window.upcoming(ahead)
                return Fetch(tuple(held.item for held in stubs if type(held) is Stub))
            if type(outcome) is Barrier:
                return MapEnd("stopped", error=outcome.error)
            self.ripe.append(outcome)
            if self.judges and (stop := self._judge(outcome)) is not None:
                return stop
        return None

    def _judge(self, outcome: Outcome[Any]) -> MapEnd | None:
        try:
            stops = self._halting.stops_at(outcome)
        except Exception as error:  # noqa: BLE001 - raised at this item's place
            return MapEnd("predicate", at=outcome.index, error=error)
        return MapEnd("until" if outcome.ok else "failure", at=outcome.index) if stops else None
