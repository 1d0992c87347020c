"""Items that can be read only once, journaled ahead of the work: resuming needs no second reading."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeAlias

from abreast.core.errors import AbreastError
from abreast.core.events import ITEM_READ, ITEMS_COMPLETE, Event
from abreast.core.item import escape, position_key
from abreast.run.setting import Setting
from abreast.store import codec

_PAGE = 500
AHEAD_ITEMS = 100_000
"""Items read and journaled ahead of the work; a longer input is read on as the work goes on."""
AHEAD_CHARACTERS = 32 << 20
"""The same, by the length of their stored form."""

_Read: TypeAlias = tuple[Any, str]


class InputIncomplete(AbreastError):
    """The driver died before it had read all items; hand them in once more."""


async def intake(setting: Setting, path: str, items: Iterable[Any]) -> AsyncIterator[Any]:
    """The items: first those journaled by an earlier driver, then (unless it had read them all) the rest of `items`.

    They are read by a thread, ahead of the work. Items handed in again are matched by their place; one that differs
    from what was journaled is an error, and nothing of what follows it is taken.
    """
    seen = 0
    async for event in _journaled(setting, path):
        if event.kind == ITEMS_COMPLETE:
            return
        yield codec.decode(event.body or "null")
        seen += 1
    ahead = _Ahead(items)
    try:
        if seen:
            await _match(ahead, setting, path, seen)
        ahead.journal = _journaling(setting, path, seen)
        async for value in ahead:
            yield value
    finally:
        ahead.stop()


async def _match(ahead: _Ahead, setting: Setting, path: str, seen: int) -> None:
    """Read the first `seen` items again, which must be those that were journaled."""
    place = 0
    async for event in _journaled(setting, path):
        again = await ahead.next_read()
        if again is None:
            raise InputIncomplete(f"{path}: an earlier driver died while reading its items (it had {seen}); hand them in again")
        if again[1] != event.body:
            raise InputIncomplete(f"{path}: item {place} is not the one that was read before; hand in the same items")
        place += 1


def _journaling(setting: Setting, path: str, seen: int) -> Callable[[_Read | None], None]:
    """What notes each item that is read, and that there are no more."""
    place = seen

    def note(read: _Read | None) -> None:
        nonlocal place
        journal = setting.journal
        if journal is None:
            return
        if read is None:
            journal.emit(ITEMS_COMPLETE, path, data={"items": place})
            return
        journal.emit(ITEM_READ, f"{path}/{escape(position_key(place))}", data={"index": place}, body=read[1])
        place += 1

    return note


async def _journaled(setting: Setting, path: str) -> AsyncIterator[Event]:
    """What earlier drivers noted: the items, then, if they had read them all, that these are all."""
    scribe, store, row = setting.scribe, setting.store, setting.row
    if not setting.resumed or scribe is None or store is None or row is None:
        return
    kinds = {ITEM_READ, ITEMS_COMPLETE}
    after, last = 0, row.last_seq  # what this driver notes itself comes later
    while True:
        since = after
        page = await scribe.read(
            lambda since=since: store.events(row.id, after=since, limit=_PAGE, kinds=kinds, prefix=path)
        )
        for event in page:
            if event.seq > last:
                return
            yield event
        if not page:
            return
        after = page[-1].seq


class _Ahead:
    """Reads items in a thread of its own. A daemon: a pipe that never says another word must not keep us from ending."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = items
        self._loop = asyncio.get_running_loop()
        self._fresh: deque[_Read] = deque()  # read by the thread, not yet seen by the loop
        self._posted = False
        self._held: deque[_Read] = deque()  # seen, and journaled if `journal` is set, not yet handed out
        self._journal: Callable[[_Read | None], None] | None = None
        self._room = threading.Condition()
        self._ahead = self._characters = 0
        self._over = self._stopped = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        threading.Thread(target=self._work, name="abreast-intake", daemon=True).start()

    @property
    def journal(self) -> Callable[[_Read | None], None] | None:
        """Called on the loop with every item as it is read; setting it has those called for that are held."""
        return self._journal

    @journal.setter
    def journal(self, note: Callable[[_Read | None], None]) -> None:
        self._journal = note
        for read in self._held:
            note(read)
        if self._over and self._error is None:
            note(None)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        read = await self.next_read()
        if read is None:
            raise StopAsyncIteration
        value, text = read
        # As a resumed run would get it.
        return value if codec.is_scalar(value) else codec.decode(text)

    async def next_read(self) -> _Read | None:
        """The next item and its stored form; None after the last, or the error of reading raised in its place."""
        while not self._held:
            if self._over:
                if self._error is not None:
                    raise self._error
                return None
            self._waiter = self._loop.create_future()
            await self._waiter
        read = self._held.popleft()
        with self._room:
            self._ahead -= 1
            self._characters -= len(read[1])
            self._room.notify()
        return read

    def stop(self) -> None:
        """Read nothing more."""
        with self._room:
            self._stopped = True
            self._room.notify()

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            for place, item in enumerate(self._items):
                text = codec.encode(item, f"item {place}")
                with self._room:
                    self._ahead += 1
                    self._characters += len(text)
                    self._fresh.append((item, text))
                    posted, self._posted = self._posted, True
                    if not posted:
                        self._tell(self._collect)
                    while not self._stopped and (self._ahead >= AHEAD_ITEMS or self._characters >= AHEAD_CHARACTERS):
                        self._room.wait()
                if self._stopped:
                    return
        except BaseException as raised:  # noqa: BLE001 - raised where the plain loop would raise it
            error = raised
        self._tell(self._end, error)

    def _tell(self, call: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: so is everyone who waited
            self._loop.call_soon_threadsafe(call, *args)

    def _collect(self) -> None:
        with self._room:
            self._posted = False
            fresh, self._fresh = self._fresh, deque()
        if self._stopped:
            return
        if self._journal is not None:
            for read in fresh:
                self._journal(read)
        self._held += fresh
        self._wake()

    def _end(self, error: BaseException | None) -> None:
        self._over, self._error = True, error
        if self._journal is not None and error is None and not self._stopped:
            self._journal(None)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
