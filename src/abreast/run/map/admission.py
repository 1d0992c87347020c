"""Admission: what is read becomes an item with a key, a lane, and the limits it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from abreast.core.errors import KeyReused
from abreast.core.item import Item, position_key
from abreast.run.current import CurrentItem
from abreast.run.slot_lending import needs_beneath

if TYPE_CHECKING:
    from abreast.limits.lane import Needs
    from abreast.run.map.scheduler import Scheduler


_DIGITS = 18  # no position has more


class Admission:
    """Makes the items of one map, and sees to it that no two go by one key."""

    def __init__(self, scheduler: Scheduler) -> None:
        """For the map of this drive."""
        self._scheduler = scheduler
        self._options = scheduler.options
        self._keys: set[int] = (
            set()
        )  # hashes of all keys that are no positions: memory O(n) where keys are given
        self._first_named: int | None = None
        self._needs_of: dict[str | None, Needs] = {}

    def item(self, value: Any, index: int, now: float) -> CurrentItem:
        """The item made of a value that was read."""
        key = lane = None
        if type(value) is Item:
            key, lane, value = value.key, value.lane, value.value
        if lane is None:
            lane = self._lane(value)
        if key is None and self._options.key is not None:
            key = self._options.key(value)
        if key is not None:
            self._watch(key, index)
        else:
            key = position_key(index)
            if self._first_named is not None:
                self._watch(key, index)
        return CurrentItem(self._scheduler, index, key, value, lane, now)

    def needs(self, item: CurrentItem) -> Needs:
        """The limits that an item asks for; a ValueError if there is no such lane."""
        lane = item.lane
        found = self._needs_of.get(lane)
        if found is None:
            hold = self._options.hold
            weights = dict(((lane, 1), *hold) if lane is not None else hold)
            found = self._needs_of[lane] = self._scheduler.run.lanes.needs(weights.items())
        if item.charged_before:  # what it asks from now on is charged call by call
            found = tuple(need for need in found if not need[1].charged)
        parent = self._scheduler.parent
        if found and parent is not None:
            found, paid = needs_beneath(parent, found)
            item.credits = paid or None
        return found

    def _lane(self, value: Any) -> str | None:
        lane = self._options.lane
        return lane if lane is None or isinstance(lane, str) else lane(value)

    def _watch(self, key: object, index: int) -> None:
        if not isinstance(key, str) or not key:
            raise TypeError(f"{self._scheduler.path}: a key must be text, not {key!r}")
        if self._first_named is None:
            self._first_named = (
                index  # those before it go by their positions, and are not in the set
            )
        by_position = (
            key.isdecimal()
            and len(key) <= _DIGITS
            and int(key) < self._first_named
            and key == position_key(int(key))
        )
        mark = hash(key)
        if by_position or mark in self._keys:
            raise KeyReused(f"{self._scheduler.path}: two items have the key {key!r}")
        self._keys.add(mark)
