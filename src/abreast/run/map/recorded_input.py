"""Recorded input: items that can be read only once, journaled as they are read.

A resumed run takes them from the journal.
"""

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

RESUME_PAGE_EVENTS = 500  # events read from the journal at once when all are needed
BUFFER_PAGE_EVENTS = 64  # the same when their items are needed one after the other
BUFFER_CHARACTERS = 1 << 20  # of journaled items kept in memory until they are asked for
MAX_BATCH_ITEMS = 100  # read items that wait for the loop, at most
# Characters of items in one event. An event with a hundred short items costs as much as with one.
EVENT_CHARACTERS = 1 << 14
# Journaled items that were not given out yet, at most: an endless pipe must not fill the disk.
MAX_ITEMS_AHEAD = 1_000_000
MAX_CHARACTERS_AHEAD = 256 << 20


class InputIncomplete(AbreastError):
    """An earlier driver died before it had read all items.

    The same items must be given once more.
    """


class RecordedInput:
    """Reads `items` in a thread as fast as they come, and gives them out as they are asked for.

    With a store each item is journaled as it is read and given out from the journal, so memory is
    bounded however far the reading is ahead. A later driver gives out the journaled items. It
    reads `items` again only if not all had been read, and then each item must equal the one that
    was read at its position before.
    """

    def __init__(self, context: RunContext, path: str, items: Iterable[Any]) -> None:
        """Nothing is read before the first item is asked for."""
        self._context = context
        self._path = path
        self._items = items
        self._recorded_texts: list[str] = []  # of items that an earlier driver read
        self._journaled = 0  # items that may be given out
        self._complete = False
        self._error: BaseException | None = None
        self._total: int | None = None  # items read, once the reading has ended or failed
        self._given = 0
        self._characters_ahead = 0  # journaled and not yet given out
        self._is_paused = False  # reading is far enough ahead
        # The next items with their sizes; not all may be journaled yet.
        self._buffer: deque[tuple[int, Any]] = deque()
        self._buffer_size = 0  # in characters
        self._buffered_seq = 0  # number of the event with the last buffered item
        self._has_spilled = False  # later items are not buffered: they are read from the journal
        self._wake_up: asyncio.Future[None] | None = None
        self._condition = threading.Condition()
        self._pending: list[Any] = []  # read and not yet journaled
        # A call on the loop is scheduled: items read meanwhile go into the same batch.
        self._is_call_scheduled = False
        self._accepted = 0  # items journaled, or matched with those of an earlier driver
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            if self._context.writer is not None and self._context.resumed:
                await self._load_recorded()
            if not self._complete:
                threading.Thread(
                    target=self._read_items, name=f"abreast-input-{self._path}", daemon=True
                ).start()
            while await self._wait_for_item():
                yield self.take()
        finally:
            with self._condition:
                self._closed = True
                self._condition.notify()

    @property
    def has_buffered(self) -> bool:
        """Whether `take` can return the next item."""
        return bool(self._buffer) and self._given < self._journaled

    def take(self) -> Any:
        """The next item; only if `has_buffered`."""
        size, item = self._buffer.popleft()
        self._given, self._characters_ahead, self._buffer_size = (
            self._given + 1,
            self._characters_ahead - size,
            self._buffer_size - size,
        )
        if self._is_paused:
            self._continue_reading()
        elif self._context.writer is None and not self._buffer:
            self._journal_pending()
        return item

    async def _wait_for_item(self) -> bool:
        """Wait for the next item; False if there is none."""
        while not self.has_buffered:
            if self._given < self._journaled:
                await self._refill_buffer()
            # The last items may have been read and not be on disk yet.
            elif self._total is not None and self._given >= self._total and self._is_complete():
                return False
            else:
                self._has_spilled = self._has_spilled and self._given < self._accepted
                self._wake_up = self._context.loop.create_future()
                await self._wake_up
        return True

    async def _refill_buffer(self) -> None:
        for event in await self._read_events(self._buffered_seq, {ITEM_READ}, BUFFER_PAGE_EVENTS):
            _, bodies = items_read(event)
            self._add_to_buffer(
                event.seq, bodies, [codec.decode(body, self._context.types) for body in bodies]
            )

    def _is_complete(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._complete

    def _notify(self) -> None:
        if self._wake_up is not None and not self._wake_up.done():
            self._wake_up.set_result(None)

    # --- the reading thread, and what it passes to the loop ---

    def _read_items(self) -> None:
        error: BaseException | None = None
        place = 0
        try:
            for item in self._items:
                self._check(item, place)
                place += 1
                if not self._pass_on(item):
                    return
            if place < len(self._recorded_texts):
                error = InputIncomplete(
                    f"{self._path}: an earlier driver died while it read its items (it had "
                    f"{len(self._recorded_texts)}); hand them in again"
                )
        except Exception as raised:  # noqa: BLE001 - raised where the items are asked for
            error = raised
        self._call_on_loop(self._finish, error)

    def _pass_on(self, item: Any) -> bool:
        """Pass an item to the loop; False once this is closed.

        Items of a slow pipe go one by one; items that come faster than they are journaled go in
        batches.
        """
        with self._condition:
            while len(self._pending) >= MAX_BATCH_ITEMS and not self._closed:
                self._condition.wait()
            self._pending.append(item)
            busy, self._is_call_scheduled = self._is_call_scheduled, True
        if not busy:
            self._call_on_loop(self._journal_pending)
        return not self._closed

    def _check(self, item: Any, place: int) -> None:
        if place >= len(self._recorded_texts):
            return
        text, before = codec.encode(item, self._path), self._recorded_texts[place]
        # An earlier version may have encoded the same value differently.
        if text != before and text != codec.encode(
            codec.decode(before, self._context.types), self._path
        ):
            raise InputIncomplete(
                f"{self._path}: item {place} is not the one read before; hand in the same items"
            )

    def _call_on_loop(self, what: Any, *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the items aren't needed
            self._context.loop.call_soon_threadsafe(what, *args)

    def _journal_pending(self) -> None:
        """Journal the items that were read since the last call."""
        with self._condition:
            batch, self._pending = self._pending, []
            self._is_call_scheduled = bool(batch)
            self._condition.notify()
        journal = self._context.journal
        if not batch or self._total is not None:
            return
        if self._context.writer is None or journal is None:
            self._buffer.extend((0, item) for item in batch)
            self._accepted += len(batch)
            self._journaled = self._accepted
            self._notify()
            return
        first = max(self._accepted, len(self._recorded_texts))
        new_items = batch[first - self._accepted :]
        bodies, error = self._encode(new_items, first)
        self._accepted += len(batch)
        end = first + len(bodies)
        for group in _split_into_events(bodies):
            last = first + len(group) == end
            facts = {"index": first, "count": len(group)} if len(group) > 1 else {"index": first}
            path = f"{self._path}/{position_key(first)}"
            written = functools.partial(self._on_written, end) if last else None
            journal.emit(ITEM_READ, path, data=facts, body="\n".join(group), written=written)
            self._characters_ahead += sum(map(len, group))
            self._buffer_new(journal.seq, group, new_items[: len(group)])
            first, new_items = first + len(group), new_items[len(group) :]
        if error is not None:
            self._fail(error, end)
        elif not bodies:
            self._journal_pending()

    def _buffer_new(self, seq: int, bodies: Sequence[str], items: Sequence[Any]) -> None:
        """Buffer new items until the buffer is full; items after that are read back later."""
        self._has_spilled = (
            self._has_spilled or self._buffer_size + sum(map(len, bodies)) > BUFFER_CHARACTERS
        )
        if not self._has_spilled:
            self._add_to_buffer(
                seq,
                bodies,
                [codec.read_back(item, body) for item, body in zip(items, bodies, strict=True)],
            )

    def _add_to_buffer(self, seq: int, bodies: Sequence[str], items: Sequence[Any]) -> None:
        self._buffered_seq = seq
        self._buffer_size += sum(map(len, bodies))
        self._buffer.extend(zip(map(len, bodies), items, strict=True))

    def _encode(self, items: Sequence[Any], first: int) -> tuple[list[str], AbreastError | None]:
        """The stored forms of items, up to the first that can't be stored, and its error."""
        bodies: list[str] = []
        try:
            for number, item in enumerate(items, first):
                bodies.append(codec.encode(item, f"{self._path}/{position_key(number)}"))
        except AbreastError as error:
            return bodies, error
        return bodies, None

    def _on_written(self, count: int) -> None:
        self._journaled = count
        self._continue_reading()
        self._notify()

    def _continue_reading(self) -> None:
        """Journal more items, unless the reading is far enough ahead."""
        self._is_paused = (
            self._journaled - self._given >= MAX_ITEMS_AHEAD
            or self._characters_ahead >= MAX_CHARACTERS_AHEAD
        )
        if not self._is_paused:
            self._journal_pending()

    def _finish(self, error: BaseException | None) -> None:
        """The reading has ended: journal what is left, then the fact that it is complete."""
        self._journal_pending()
        if error is not None:
            self._fail(error, self._accepted)
        elif self._total is None:
            self._total, self._complete = self._accepted, True
            if self._context.journal is not None:
                self._context.journal.emit(
                    ITEMS_COMPLETE, self._path, data={"items": self._accepted}
                )
            self._notify()

    def _fail(self, error: BaseException, total: int) -> None:
        if self._total is None:
            self._total, self._error = total, error
            self._notify()

    # --- items that an earlier driver journaled ---

    async def _load_recorded(self) -> None:
        after = 0
        while page := await self._read_events(
            after, {ITEM_READ, ITEMS_COMPLETE}, RESUME_PAGE_EVENTS
        ):
            for event in page:
                if event.kind == ITEMS_COMPLETE:
                    self._complete = True
                else:
                    self._recorded_texts += items_read(event)[1]
            after = page[-1].seq
        self._journaled = len(self._recorded_texts)
        self._has_spilled = True  # items of an earlier driver come first
        self._characters_ahead = sum(map(len, self._recorded_texts))
        if self._complete:
            self._total, self._recorded_texts = len(self._recorded_texts), []

    async def _read_events(self, after: int, kinds: set[str], limit: int) -> list[Event]:
        writer, store, row = self._context.writer, self._context.store, self._context.row
        if writer is None or store is None or row is None:
            return []
        return await writer.read(
            lambda: store.events(row.id, after=after, limit=limit, kinds=kinds, prefix=self._path)
        )


def _split_into_events(bodies: Sequence[str]) -> Iterator[list[str]]:
    """The texts of items in groups of up to `EVENT_CHARACTERS`, one group for each event."""
    group: list[str] = []
    size = 0
    for body in bodies:
        if group and size + len(body) > EVENT_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(body)
        size += len(body)
    if group:
        yield group
