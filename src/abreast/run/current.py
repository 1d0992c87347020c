"""The current item: what running code knows about the item it works for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from abreast.core.events import Plain
from abreast.executors.port import DRIVER
from abreast.run.item_state import CURRENT, ItemPlace, ItemState, current_state

if TYPE_CHECKING:
    from abreast.core.outcome import Usage
    from abreast.run.run import Run


class CurrentItem:
    """The item that the running code works for; `abreast.current()` returns it.

        def fetch(url):
            item = abreast.current()
            return item.key, item.attempt, item.seed

    Its attributes can only be read. `note` and `add_usage` report to the run. In another process
    than its run's (`executor="process"` or `"ray"`) `run` raises RuntimeError.
    """

    __slots__ = ("_state",)

    def __init__(self, state: ItemState | ItemPlace) -> None:
        """`state` is an `ItemPlace` in another process than its run's."""
        self._state = state

    def __repr__(self) -> str:
        return f"<item {self.path}, attempt {self.attempt}>"

    @property
    def path(self) -> str:
        """The item's full path, such as `summaries/summarise/0007`."""
        return self._state.path

    @property
    def map_name(self) -> str:
        """The name of the item's map."""
        return self._state.map_name

    @property
    def key(self) -> str:
        """The item's key, unique in its map."""
        return self._state.key

    @property
    def index(self) -> int:
        """The item's position in its map."""
        return self._state.index

    @property
    def lane(self) -> str | None:
        """The lane whose limits the item holds."""
        return self._state.lane

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._state.attempt

    @property
    def usage(self) -> Usage | None:
        """What the item has used so far; None if nothing."""
        return self._state.usage

    @property
    def seed(self) -> int:
        """The item's own seed, derived from the run's seed and the item's path.

        It is the same in every run with that seed, whatever the run's name or the map's width.
        """
        return self._state.seed

    @property
    def held(self) -> Mapping[str, object]:
        """The resources taken from pools, by lane name."""
        return self._state.held

    @property
    def run(self) -> Run:
        """The item as a scope: maps and steps opened in it have paths beneath the item's."""
        state = self._state_here()
        if state.scope is None:
            state.scope = state.place.scope.scope_of(state)
        return cast("Run", state.scope)

    def note(self, kind: str, **facts: Plain) -> None:
        """Add an event of your own to the run's journal, under the item's path.

        It is written with the next commit and doesn't cause one.
        """
        state = self._state
        if isinstance(state, ItemPlace):
            if (driver := DRIVER.get()) is not None:
                driver.post(functools.partial(_note_here, kind, facts))
            return
        context = state.context
        if context.journal is not None:
            emit = functools.partial(
                context.journal.emit, kind, self.path, lane=self.lane, data=facts
            )
            # Events are numbered on the loop's thread, so a worker thread passes the call to it.
            context.loop.call_soon_threadsafe(emit) if _is_worker_thread() else emit()

    def add_usage(self, used: Usage) -> None:
        """Add usage that abreast can't see, or that a job counts itself, to the item's."""
        driver = DRIVER.get() if isinstance(self._state, ItemPlace) else None
        if driver is not None:
            driver.post(functools.partial(_add_usage_here, used))
        else:
            self._state_here().add_usage(used)

    def _state_here(self) -> ItemState:
        """The item's state; RuntimeError if it is in another process."""
        if isinstance(self._state, ItemPlace):
            raise RuntimeError(
                "this item works in another process than its run; open maps where the run is"
            )
        return self._state


def _note_here(kind: str, facts: Mapping[str, Plain]) -> None:
    current().note(kind, **facts)


def _add_usage_here(used: Usage) -> None:
    current().add_usage(used)


def _is_worker_thread() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False


def current() -> CurrentItem:
    """The item that the running code works for: its path, key, seed, attempt and more.

    Raises RuntimeError outside of any item. Inside, `current().run` opens maps and steps beneath
    the item.
    """
    found = CURRENT.get()
    if found is None:
        raise RuntimeError("abreast.current() is only there inside an item of a map")
    return CurrentItem(found)


def current_item() -> CurrentItem | None:
    """The item that the running code works for, when it works in the run's own process."""
    state = current_state()
    return None if state is None else CurrentItem(state)
