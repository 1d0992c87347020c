"""Answers kept for equal requests, in the store's cache of replies."""

import asyncio
from collections.abc import Mapping
from typing import Any

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import StoreError
from abreast.store.codec import codec
from abreast.store.port import Store


class AnswerCache:
    """Keeps answers beside the cached replies of models; `abreast cache` lists and clears both."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find(self, key: str) -> Mapping[str, Any] | None:
        """The answer to an equal request, if there was one."""
        text = self._store.find_reply(_name(key))
        try:
            found = None if text is None else codec.decode_plain(text)
        except StoreError:
            return None
        return found if isinstance(found, Mapping) and "status" in found else None

    async def keep(self, key: str, model: str, facts: Mapping[str, object]) -> None:
        """Keep a whole answer; errors are not kept."""
        if facts["status"] == 200:  # noqa: PLR2004 - OK
            body = codec.encode(dict(facts), "an answer")
            await asyncio.to_thread(
                self._store.keep_reply, _name(key), model, body, SYSTEM_CLOCK.wall()
            )


def _name(key: str) -> str:
    """The name of a request in the cache: without the number among equal ones."""
    return f"serve-{key.rpartition('-')[0]}"
