"""Admission: makes an item with a key, a lane and its limits from each value that is read."""

from typing import Any

from abreast.core.errors import KeyReused
from abreast.core.item import Item, position_key
from abreast.core.outcome import Usage
from abreast.core.window import Window
from abreast.limits.lane import Needs
from abreast.limits.limit import WHENEVER, Need, WaitingLine
from abreast.run.item_state import ItemState, MapPlace
from abreast.run.map.options import MapOptions
from abreast.run.slot_lending import needs_beneath

MAX_POSITION_DIGITS = 18  # no position has more digits


class Admission:
    """Makes the items of one map, and refuses a key that is used twice."""

    __slots__ = ("_first_named", "_hold", "_key", "_keys", "_lane", "_needs_of", "_place")

    def __init__(self, options: MapOptions, place: MapPlace) -> None:
        """For the map at this place; of the options it uses lane, key and hold."""
        self._lane = options.lane
        self._key = options.key
        self._hold = options.hold
        self._place = place
        # Hashes of all keys that are no positions. With user-given keys this takes O(n) memory.
        self._keys: set[int] = set()
        self._first_named: int | None = None  # index of the first item with a key of its own
        self._needs_of: dict[str | None, Needs] = {}

    def item(self, value: Any, index: int, now: float) -> ItemState:
        """The item for a value that was read."""
        key = lane = None
        if type(value) is Item:
            key, lane, value = value.key, value.lane, value.value
        if lane is None:
            given = self._lane
            lane = given if given is None or isinstance(given, str) else given(value)
        if key is None and self._key is not None:
            key = self._key(value)
        if key is not None:
            self._check_key(key, index)
        else:
            key = position_key(index)
            if self._first_named is not None:
                self._check_key(key, index)
        return ItemState(self._place, index, key, value, lane, now)

    def needs(self, item: ItemState) -> Needs:
        """The limits that an item asks for; ValueError if there is no such lane."""
        lane = item.lane
        found = self._needs_of.get(lane)
        if found is None:
            hold = self._hold
            weights = dict(((lane, 1), *hold) if lane is not None else hold)
            found = self._needs_of[lane] = self._place.scope.lanes.needs(weights.items())
        if item.charged_before:  # its further requests are charged call by call
            found = tuple(need for need in found if not need[1].charged)
        parent = self._place.parent
        if found and parent is not None:
            found, paid = needs_beneath(parent, found)
            item.credits = paid or None
        return found

    def _check_key(self, key: object, index: int) -> None:
        if not isinstance(key, str) or not key:
            raise TypeError(f"{self._place.path}: a key must be text, not {key!r}")
        if self._first_named is None:
            # The items before it have their positions as keys, which are not in the set.
            self._first_named = index
        by_position = (
            key.isdecimal()
            and len(key) <= MAX_POSITION_DIGITS
            and int(key) < self._first_named
            and key == position_key(int(key))
        )
        if by_position or hash(key) in self._keys:
            raise KeyReused(f"{self._place.path}: two items have the key {key!r}")
        self._keys.add(hash(key))


class WidthLimit:
    """The window's width as a limit, so that items wait for it in the same queue as for lanes."""

    lent = False
    charged = False

    __slots__ = ("line", "window")

    def __init__(self, window: Window[Any]) -> None:
        self.window = window
        self.line = WaitingLine()

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - by the Limit port
        """None if another item may execute."""
        return None if self.window.may_start else WHENEVER

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002 - by the Limit port
        """Count one more item as executing."""
        self.window.start()
        return None

    def give(
        self,
        need: Need,  # noqa: ARG002 - by the Limit port
        handed: object,  # noqa: ARG002 - by the Limit port
        used: Usage | None,  # noqa: ARG002 - by the Limit port
        now: float,  # noqa: ARG002 - by the Limit port
    ) -> None:
        """Count one item fewer."""
        self.window.finish()
