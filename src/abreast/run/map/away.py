"""Items that wait for a batch: they give up their place in the width, and take one again later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from abreast.core.window import Window
from abreast.limits.gate import LimitGate
from abreast.limits.limit import ONE, Ticket
from abreast.run.item_state import ItemState
from abreast.run.map.admission import WidthLimit
from abreast.run.slot_lending import lend, reclaim, wait_granted


class AwayItems:
    """The items of one map that are away; they count against its span.

    If all items of the maps beneath an item are away, so is that item.
    """

    def __init__(
        self,
        window: Window[Any],
        width_limit: WidthLimit,
        gate: LimitGate,
        start_more: Callable[[], None],
        parent: ItemState | None,
    ) -> None:
        """`start_more` is called when a place is free; `parent` is the item above the map."""
        self._window = window
        self._width_limit = width_limit
        self._gate = gate
        self._start_more = start_more
        self._parent = parent
        self._count = 0
        self.batch_size = 0  # the largest that items have waited for
        self.can_wait = True  # its function is async and runs in this process

    @property
    def executing(self) -> int:
        """The items of the map that execute."""
        return self._window.executing

    @property
    def waiting(self) -> int:
        """The items of the map that are away."""
        return self._count

    async def begin(self) -> None:
        """Take part in whether the item above is away; wait until it has a place for the map."""
        parent = self._parent
        if parent is None:
            return
        parent.maps_below = (*parent.maps_below, self)
        if parent.away and parent.place.away is not None:
            await parent.place.away.come_back(parent)

    def close(self) -> None:
        """Take no part any more: the map is over."""
        parent = self._parent
        if parent is not None:
            parent.maps_below = tuple(each for each in parent.maps_below if each is not self)
            self.check_parent()

    def leave(self, item: ItemState, span: int) -> None:
        """Give up the item's place; the map's span is at least `span` from now on."""
        window = self._window
        window.span = max(window.span, span)
        self.batch_size = max(self.batch_size, span)
        if item.away:
            return
        item.away = True
        self._count += 1
        window.finish()
        self._start_more()
        self.check_parent()

    def check_parent(self) -> None:
        """Let the item above give up its place too, if all that is beneath it waits."""
        parent = self._parent
        if parent is None or parent.away or self._window.executing:
            return
        below = parent.maps_below
        if not any(each.waiting for each in below) or any(each.executing for each in below):
            return
        places = parent.place.away
        if places is not None and parent.task is not None:
            places.leave(parent, max(each.batch_size for each in below))

    async def come_back(self, item: ItemState) -> None:
        """Wait for a place for the item, and for the items above it."""
        while item.returning is not None:  # for another call of it
            await asyncio.wait([item.returning])
        if not item.away:
            return
        done = item.returning = asyncio.get_running_loop().create_future()
        try:
            parent = self._parent
            if parent is not None and parent.away and parent.place.away is not None:
                await parent.place.away.come_back(parent)
            ticket = Ticket((("width", self._width_limit, ONE),))
            if not self._gate.ask(ticket):
                await wait_granted(self._gate, ticket)
            item.away = False
            self._count -= 1
        finally:
            item.returning = None
            done.set_result(None)

    def end(self, item: ItemState) -> None:
        """Count an item as executing that ends while it is away, as all others are."""
        if item.away:
            item.away = False
            self._count -= 1
            self._window.executing += 1


@asynccontextmanager
async def away(item: ItemState, span: int) -> AsyncIterator[None]:
    """In this block the item waits: it has no place in the width, and its slots are lent.

    It has both again after the block, unless it was cancelled.
    """
    places = item.place.away
    if places is None:
        raise RuntimeError(f"{item.path} is in no map that it can be away from")
    lent = lend(item)
    places.leave(item, span)
    try:
        yield
    except asyncio.CancelledError:
        if lent:
            item.lenders -= 1
        raise
    except BaseException:
        await places.come_back(item)
        if lent:
            await reclaim(item)
        raise
    await places.come_back(item)
    if lent:
        await reclaim(item)
