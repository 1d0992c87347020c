"""The reader: reads the values of a map from plain, asynchronous and buffered iterables."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

from abreast.run.item_state import ItemState

LOOKUP_ITEMS = 64  # items looked up in the store at once


@runtime_checkable
class BufferedItems(Protocol):
    """An async iterable that can also return buffered items without waiting."""

    @property
    def has_buffered(self) -> bool:
        """Whether the next item is buffered."""

    def take(self) -> Any:
        """The next buffered item."""


class Batch(NamedTuple):
    """Items that were read together, and whether the reading ended after them, perhaps failed."""

    items: list[ItemState]
    over: bool = False
    error: Exception | None = None


class Reader:
    """Reads the values of one map; the scheduler decides when.

    A `plain` source is read by `take` alone. Any other needs a task that calls `read` and, while
    the window is full, `wait`. Meanwhile buffered values can be taken, without a turn of that task.
    """

    def __init__(self, items: Iterable[Any] | AsyncIterable[Any], *, looks_up: bool) -> None:
        """With `looks_up`, items may be recorded already: they are read in batches."""
        self._looks_up = looks_up
        self._arriving: AsyncIterator[Any] | None = None
        self._buffer = items if isinstance(items, BufferedItems) else None
        self._wake_up: asyncio.Future[None] | None = None
        self.source: Iterator[Any] = iter(())
        self.take: Callable[[], Any] = self.source.__next__  # the next value, without waiting
        if isinstance(items, AsyncIterable):
            self._arriving = aiter(items)
            if self._buffer is not None:
                self.take = self._buffer.take
        else:
            self.source = iter(items)
            self.take = self.source.__next__
        self.plain = self._arriving is None and not looks_up
        self.is_reading = not self.plain  # its task reads, or is about to

    @property
    def has_buffered(self) -> bool:
        """Whether `take` can return a value that need not be looked up."""
        return not self._looks_up and self._buffer is not None and self._buffer.has_buffered

    async def wait(self) -> None:
        """Wait until `wake` is called."""
        self._wake_up = asyncio.get_running_loop().create_future()
        self.is_reading = False
        await self._wake_up

    def wake(self) -> None:
        """End `wait`, if its task waits."""
        if self._wake_up is not None and not self._wake_up.done():
            self.is_reading = True
            self._wake_up.set_result(None)

    async def read(self, admit: Callable[[Any], ItemState], may_admit: Callable[[], bool]) -> Batch:
        """Wait for the next value and admit it, with all that can be looked up together with it."""
        items: list[ItemState] = []
        try:
            value = self.take() if self._arriving is None else await anext(self._arriving)
            items.append(admit(value))
            while (
                self._looks_up
                and len(items) < LOOKUP_ITEMS
                and (
                    self._arriving is None
                    or (self._buffer is not None and self._buffer.has_buffered)
                )
                and may_admit()
            ):
                items.append(admit(self.take()))
        except (StopIteration, StopAsyncIteration):
            return Batch(items, over=True)
        except Exception as error:  # noqa: BLE001 - raised by the items, where a loop raises it
            return Batch(items, over=True, error=error)
        return Batch(items)


async def close_sources(*sources: object) -> None:
    """Close generators; a file is closed by its owner."""
    for source in sources:
        aclose, close = getattr(source, "aclose", None), getattr(source, "close", None)
        if aclose is not None:
            await aclose()
        elif close is not None and hasattr(source, "send"):
            close()
