"""Items that can be read only once, journaled ahead of the work: resuming needs no second reading."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from abreast.core.errors import AbreastError
from abreast.core.events import ITEM_READ, ITEMS_COMPLETE, Event, items_read
from abreast.core.item import position_key
from abreast.run.context import RunContext
from abreast.store.codec import codec

_PAGE = 500  # events read from the journal at once when all are wanted
_FEW = 64  # the same, when their items are wanted one after the other
_FRESH = 1 << 20  # characters of items kept in memory between being journaled and being asked for
_BATCH = 100  # items handed to the loop at once, at most
_TOGETHER = (
    1 << 14
)  # characters of items in one event: it costs as much for a hundred short ones as for one
# items journaled and not yet given out, at most: an endless pipe must not fill the disk
_FARTHEST = 1_000_000
_LARGEST = 256 << 20  # the same, in characters


class InputIncomplete(AbreastError):
    """An earlier driver died before it had read all items.

    They must be handed in once more, and be the same.
    """


class RecordedInput:
    """Reads `items` in a thread as fast as they come, and gives them out as they are asked for.

    With a store each item is journaled as it is read, and given out from the journal: memory stays
    flat however far the reading is ahead. A later driver gives out what is journaled; only if the
    reading had not come to its end does it read `items` again, and each must then be what was read
    in its place before.
    """

    def __init__(self, context: RunContext, path: str, items: Iterable[Any]) -> None:
        """Nothing is read before the first item is asked for."""
        self._context = context
        self._path = path
        self._items = items
        self._before: list[str] = []
        self._journaled = 0  # items that may be given out
        self._complete = False
        self._error: BaseException | None = None
        self._total: int | None = (
            None  # items that were read, once there are no more, or no more can be
        )
        self._given = 0
        self._ahead = 0  # characters journaled and not yet given out
        self._held_back = False
        self._stock: deque[tuple[int, Any]] = (
            deque()
        )  # the next items with their sizes; not all may be journaled yet
        self._kept = 0  # characters of those
        self._after = 0  # number of the event that the last of them is in
        self._spilled = False  # later items are not among them, and must be read from the journal
        self._news: asyncio.Future[None] | None = None
        self._room = threading.Condition()
        self._pending: list[Any] = []  # read, not yet taken in
        self._busy = (
            False  # a batch is on its way: what is read meanwhile waits, and goes over together
        )
        self._taken = 0  # items taken in, or matched with those of an earlier driver
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        """The items, once."""
        try:
            if self._context.scribe is not None and self._context.resumed:
                await self._look_back()
            if not self._complete:
                self._start()
            while await self._more():
                yield self.take()
        finally:
            with self._room:
                self._closed = True
                self._room.notify()

    @property
    def stocked(self) -> bool:
        """Whether the next item is at hand."""
        return bool(self._stock) and self._given < self._journaled

    def take(self) -> Any:
        """The next item, where there is one at hand."""
        size, item = self._stock.popleft()
        self._given, self._ahead, self._kept = (
            self._given + 1,
            self._ahead - size,
            self._kept - size,
        )
        if self._held_back:
            self._read_on()
        elif self._context.scribe is None and not self._stock:
            self._take_in()
        return item

    async def _more(self) -> bool:
        """Wait for the next item; False if there is none."""
        while not self.stocked:
            if self._given < self._journaled:
                await self._restock()
            # The last items may have been read and not be on disk yet.
            elif self._total is not None and self._given >= self._total and self._ended():
                return False
            else:
                self._spilled = self._spilled and self._given < self._taken
                await self._wait()
        return True

    async def _restock(self) -> None:
        page = await self._read(self._after, {ITEM_READ}, _FEW)
        if (
            not page
        ):  # they were only jotted down, and can't be committed any more: the run is about to end
            await self._wait()
        for event in page:
            _, bodies = items_read(event)
            self._keep(
                event.seq, bodies, [codec.decode(body, self._context.types) for body in bodies]
            )

    def _ended(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._complete

    async def _wait(self) -> None:
        self._news = self._context.loop.create_future()
        await self._news

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # --- the reading thread, and what it hands over -----------------------------------------------------------------

    def _start(self) -> None:
        threading.Thread(
            target=self._work, name=f"abreast-intake-{self._path}", daemon=True
        ).start()

    def _work(self) -> None:
        error: BaseException | None = None
        place = 0
        try:
            for item in self._items:
                self._check(item, place)
                place += 1
                if not self._hand_over(item):
                    return
            if place < len(self._before):
                error = InputIncomplete(
                    f"{self._path}: an earlier driver died while it read its items (it had "
                    f"{len(self._before)}); hand them in again"
                )
        except Exception as raised:  # noqa: BLE001 - the items' own error, raised where they are asked for
            error = raised
        self._call(self._finish, error)

    def _hand_over(self, item: Any) -> bool:
        """One by one from a slow pipe, in batches from anything that comes faster than it is taken in."""
        with self._room:
            while len(self._pending) >= _BATCH and not self._closed:
                self._room.wait()
            self._pending.append(item)
            busy, self._busy = self._busy, True
        if not busy:
            self._call(self._take_in)
        return not self._closed

    def _check(self, item: Any, place: int) -> None:
        if place < len(self._before) and not self._is_before(item, self._before[place]):
            raise InputIncomplete(
                f"{self._path}: item {place} is not the one read before; hand in the same items"
            )

    def _is_before(self, item: Any, before: str) -> bool:
        """Whether the item is the one recorded, also where an earlier version wrote the same value differently."""
        text = codec.encode(item, self._path)
        return text == before or text == codec.encode(
            codec.decode(before, self._context.types), self._path
        )

    def _call(self, what: Any, *args: Any) -> None:
        with contextlib.suppress(
            RuntimeError
        ):  # the loop is gone, and with it whoever wanted the items
            self._context.loop.call_soon_threadsafe(what, *args)

    def _take_in(self) -> None:
        """Journal what was read since the last time."""
        with self._room:
            batch, self._pending = self._pending, []
            self._busy = bool(batch)
            self._room.notify()
        journal = self._context.journal
        if not batch or self._total is not None:
            return
        if self._context.scribe is None or journal is None:
            self._stock.extend((0, item) for item in batch)
            self._taken += len(batch)
            self._journaled = self._taken
            self._tell()
            return
        first = max(self._taken, len(self._before))
        fresh = batch[first - self._taken :]
        bodies, error = self._encoded(fresh, first)
        self._taken += len(batch)
        end = first + len(bodies)
        for together in _portions(bodies):
            last = first + len(together) == end
            facts = (
                {"index": first, "count": len(together)} if len(together) > 1 else {"index": first}
            )
            path = f"{self._path}/{position_key(first)}"
            written = functools.partial(self._written, end) if last else None
            journal.emit(ITEM_READ, path, data=facts, body="\n".join(together), written=written)
            self._ahead += sum(map(len, together))
            self._keep_fresh(journal.seq, together, fresh[: len(together)])
            first, fresh = first + len(together), fresh[len(together) :]
        if error is not None:
            self._fail(error, end)
        elif not bodies:
            self._take_in()

    def _keep_fresh(self, seq: int, bodies: Sequence[str], items: Sequence[Any]) -> None:
        """Keep a few items for those who ask for them soon.

        From the first that is one too many, they are read back.
        """
        self._spilled = self._spilled or self._kept + sum(map(len, bodies)) > _FRESH
        if not self._spilled:
            self._keep(
                seq,
                bodies,
                [codec.read_back(item, body) for item, body in zip(items, bodies, strict=True)],
            )

    def _keep(self, seq: int, bodies: Sequence[str], items: Sequence[Any]) -> None:
        self._after = seq
        self._kept += sum(map(len, bodies))
        self._stock.extend(zip(map(len, bodies), items, strict=True))

    def _encoded(self, items: Sequence[Any], first: int) -> tuple[list[str], AbreastError | None]:
        """The stored forms of items, up to the first that has none, and why it has none."""
        bodies: list[str] = []
        try:
            for number, item in enumerate(items, first):
                bodies.append(codec.encode(item, f"{self._path}/{position_key(number)}"))
        except AbreastError as error:
            return bodies, error
        return bodies, None

    def _written(self, count: int) -> None:
        self._journaled = count
        self._read_on()
        self._tell()

    def _read_on(self) -> None:
        """Take in more, unless that is far enough ahead."""
        self._held_back = self._journaled - self._given >= _FARTHEST or self._ahead >= _LARGEST
        if not self._held_back:
            self._take_in()

    def _finish(self, error: BaseException | None) -> None:
        """The reading is over: take in what is left, and say so after it."""
        self._take_in()
        if error is not None:
            self._fail(error, self._taken)
        elif self._total is None:
            self._total, self._complete = self._taken, True
            if self._context.journal is not None:
                self._context.journal.emit(ITEMS_COMPLETE, self._path, data={"items": self._taken})
            self._tell()

    def _fail(self, error: BaseException, total: int) -> None:
        if self._total is None:
            self._total, self._error = total, error
            self._tell()

    # --- what an earlier driver left --------------------------------------------------------------------------------

    async def _look_back(self) -> None:
        after = 0
        while page := await self._read(after, {ITEM_READ, ITEMS_COMPLETE}, _PAGE):
            for event in page:
                if event.kind == ITEMS_COMPLETE:
                    self._complete = True
                else:
                    self._before += items_read(event)[1]
            after = page[-1].seq
        self._journaled = len(self._before)
        self._spilled = True  # what an earlier driver has read comes first
        self._ahead = sum(map(len, self._before))
        if self._complete:
            self._total, self._before = len(self._before), []

    async def _read(self, after: int, kinds: set[str], limit: int) -> list[Event]:
        writer, store, row = self._context.scribe, self._context.store, self._context.row
        if writer is None or store is None or row is None:
            return []
        return await writer.read(
            lambda: store.events(row.id, after=after, limit=limit, kinds=kinds, prefix=self._path)
        )


def _portions(bodies: Sequence[str]) -> Iterator[list[str]]:
    """Texts of items in groups that make events of a handy size."""
    together: list[str] = []
    size = 0
    for body in bodies:
        if together and size + len(body) > _TOGETHER:
            yield together
            together, size = [], 0
        together.append(body)
        size += len(body)
    if together:
        yield together
