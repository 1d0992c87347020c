"""Answers kept for equal requests, in the store's cache of replies."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import StoreError
from abreast.serve.routes import Route
from abreast.store.codec import codec
from abreast.store.port import Store

_DIGEST_BYTES: Final = 6


class AnswerCache:
    """Keeps answers beside the cached replies of models; `abreast cache` lists and clears both."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Answers on their way into the store: a client has its answer, and may ask again, before.
        self._being_kept: dict[str, str] = {}

    def find(self, key: str, route: Route) -> Mapping[str, Any] | None:
        """The answer of the same models to an equal request, if there was one."""
        name = _name(key, route)
        text = self._being_kept.get(name) or self._store.find_reply(name)
        try:
            found = None if text is None else codec.decode_plain(text)
        except StoreError:
            return None
        return found if isinstance(found, Mapping) and "status" in found else None

    async def keep(self, key: str, route: Route, facts: Mapping[str, object]) -> None:
        """Keep a whole answer; errors are not kept."""
        if facts["status"] == 200:  # noqa: PLR2004 - OK
            name, body = _name(key, route), codec.encode(dict(facts), "an answer")
            self._being_kept[name] = body
            try:
                await asyncio.to_thread(
                    self._store.keep_reply, name, route.name, body, SYSTEM_CLOCK.wall()
                )
            finally:
                self._being_kept.pop(name, None)


def _name(key: str, route: Route) -> str:
    """The name of a request in the cache: without the number among equal ones.

    The models are in it, as flags and settings decide which ones a name in a request means.
    """
    models = "\0".join(caller.name for caller in route.callers)
    digest = hashlib.blake2b(models.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"serve-{key.rpartition('-')[0]}-{digest}"
