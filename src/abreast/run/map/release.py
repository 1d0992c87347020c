"""Release: which outcomes may leave, and where the map ends. It decides; the driver acts."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from abreast.core.halting import Halting
from abreast.core.outcome import Outcome
from abreast.core.window import Window
from abreast.run.current import CurrentItem


class Stub:
    """An outcome that is on disk and waits for its turn there."""

    __slots__ = ("item",)

    def __init__(self, item: CurrentItem) -> None:
        """Of this item."""
        self.item = item


class Barrier:
    """The place of an item that could not start: the map ends here, with this error."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        """With this error."""
        self.error = error


class MapEnd(NamedTuple):
    """The map ends: after the item `at`, or (without one) with an error, letting what is under way end by itself."""

    reason: str
    at: int | None = None
    error: BaseException | None = None


class Fetch(NamedTuple):
    """The next outcomes wait on disk and must be read back first."""

    items: tuple[CurrentItem, ...]


class Release:
    """Lets outcomes ripen in their order, and judges each once."""

    __slots__ = ("_foresees", "_halting", "judges", "ripe", "window")

    def __init__(self, window: Window[Any], halting: Halting[Any]) -> None:
        """From this window, by this rule."""
        self.window = window
        self.ripe: deque[Outcome[Any]] = deque()
        self._halting = halting
        self._foresees = halting.foresees and window.order == "item"
        self.judges = not halting.always_goes_on

    def settle(self, outcome: Outcome[Any]) -> int | None:
        """The index after which no item is wanted any more, now that this outcome is known.

        None while that is open.
        """
        if not self._foresees:
            return None
        self._halting.settle(outcome)
        return self._halting.end

    def advance(self, ahead: int) -> MapEnd | Fetch | None:
        """Ripen all whose turn it is; what else there is to do, if anything."""
        window = self.window
        while (outcome := window.ripen()) is not None:
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
        except Exception as error:  # noqa: BLE001 - the predicate's own error, raised at this item's place
            return MapEnd("predicate", at=outcome.index, error=error)
        return MapEnd("until" if outcome.ok else "failure", at=outcome.index) if stops else None
