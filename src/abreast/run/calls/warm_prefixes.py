"""Warm prefixes: of calls that begin alike one goes ahead, and fills the provider's cache."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from abreast.models.port import Request
from abreast.run.item_state import ItemState
from abreast.run.slot_lending import lend, reclaim

MIN_CHARACTERS: Final = 4096
"""Of what requests share; providers cache from about 1,024 tokens on."""


class WarmPrefixes:
    """Which beginnings of requests a provider has seen, so that they are in its cache."""

    def __init__(self) -> None:
        self._first_calls: dict[str, asyncio.Future[bool]] = {}

    @asynccontextmanager
    async def turn(self, request: Request, item: ItemState | None = None) -> AsyncIterator[None]:
        """Go ahead as the first with this beginning, or wait until the first has its reply.

        If that fails, the next one goes ahead. The slots of an `item` that waits are lent.
        """
        key = _shared(request)
        first = None
        while key is not None:
            ahead = self._first_calls.get(key)
            if ahead is None:
                first = self._first_calls[key] = asyncio.get_running_loop().create_future()
                break
            if ahead.done() or await _wait_for(ahead, item):
                break
        is_warm = False
        try:
            yield
            is_warm = True
        finally:
            if first is not None and key is not None:
                if not is_warm:
                    del self._first_calls[key]
                first.set_result(is_warm)


async def _wait_for(ahead: asyncio.Future[bool], item: ItemState | None) -> bool:
    """Return whether the call ahead has filled the cache; it may need the slots of the item."""
    is_lent = item is not None and lend(item)
    try:
        is_warm = await asyncio.shield(ahead)
    except BaseException:
        if is_lent and item is not None:  # the item ends
            item.lenders -= 1
        raise
    if is_lent and item is not None:
        await reclaim(item)
    return is_warm


def _shared(request: Request) -> str | None:
    """What names the beginning that a request shares with others; None if it is short."""
    if not request.messages or request.shared_prefix is None:
        return None
    text = (request.system or "") + request.messages[-1].content[: request.shared_prefix]
    if len(text) < MIN_CHARACTERS:
        return None
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
