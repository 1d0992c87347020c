"""Items that can be read only once, journaled ahead of the work: resuming needs no second reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from abreast.core.errors import AbreastError
from abreast.core.events import ITEM_READ, ITEMS_COMPLETE
from abreast.core.item import escape, position_key
from abreast.run.setting import Setting
from abreast.store import codec

_PAGE = 500
_END = object()


class InputIncomplete(AbreastError):
    """The driver died before it had read all items; hand them in once more."""


async def intake(setting: Setting, path: str, items: Iterable[Any]) -> AsyncIterator[Any]:
    """The items: first those journaled by an earlier driver, then (unless it had read them all) the rest of `items`.

    Items handed in again are matched by their place; one that differs from what was journaled is an error.
    """
    seen, complete = 0, False
    journaled: list[str] = []
    if setting.resumed and setting.scribe is not None:
        journaled, complete = await _journaled(setting, path)
    for text in journaled:
        yield codec.decode(text)
        seen += 1
    if complete:
        return
    source = iter(items)
    place = 0
    while (item := await asyncio.get_running_loop().run_in_executor(None, _next, source)) is not _END:
        if place < seen:
            if codec.encode(item, path) != journaled[place]:
                raise InputIncomplete(f"{path}: item {place} is not the one that was read before; hand in the same items")
        else:
            await _write(setting, path, place, item)
            yield item
        place += 1
    if place < seen:
        raise InputIncomplete(f"{path}: an earlier driver died while reading its items (it had {seen}); hand them in again")
    if setting.journal is not None:
        setting.journal.emit(ITEMS_COMPLETE, path, data={"items": place})


def _next(source: Iterator[Any]) -> Any:
    return next(source, _END)


async def _write(setting: Setting, path: str, place: int, item: Any) -> None:
    if setting.journal is not None:
        key = position_key(place)
        body = codec.encode(item, f"{path}/{key}")
        setting.journal.emit(ITEM_READ, f"{path}/{escape(key)}", data={"index": place}, body=body)


async def _journaled(setting: Setting, path: str) -> tuple[list[str], bool]:
    scribe, store, row = setting.scribe, setting.store, setting.row
    if scribe is None or store is None or row is None:
        return [], False
    run_id = row.id
    texts: list[str] = []
    after = 0
    while True:
        since = after
        page = await scribe.read(
            lambda since=since: store.events(run_id, after=since, limit=_PAGE, kinds={ITEM_READ, ITEMS_COMPLETE}, prefix=path)
        )
        if not page:
            return texts, False
        for event in page:
            if event.kind == ITEMS_COMPLETE and event.path == path:
                return texts, True
            texts.append(event.body or "null")
        after = page[-1].seq
