"""Server-sent events: a line whenever there is something new, from looks at the store that hold up nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError
from abreast.web import pages
from abreast.web.files import json_text
from abreast.web.pages import PageSource

if TYPE_CHECKING:
    from starlette.requests import Request

EVERY: Final = 0.5
"""Seconds between two looks."""
_SHARE: Final = (
    12  # a look is followed by a pause so many times as long: whoever writes must not notice
)
# seconds between two pieces of a journal that is being opened, for others who ask meanwhile
_BREATH: Final = 0.02
# seconds without a word after which one is said, so that both sides notice a dead connection
_ALIVE: Final = 10.0

Look = Callable[[], "dict[str, object] | None"]


def stream(
    request: Request, look: Look, closing: threading.Event, secrets: Collection[str] = ()
) -> StreamingResponse:
    """Send what `look` finds, without secrets, again and again until the server is closing.

    None is nothing new.
    """
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    lines = _lines(request, look, closing, secrets)
    return StreamingResponse(lines, media_type="text/event-stream", headers=headers)


async def _lines(
    request: Request, look: Look, closing: threading.Event, secrets: Collection[str]
) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    quiet, opening = 0.0, True
    while not closing.is_set() and not await request.is_disconnected():
        began = SYSTEM_CLOCK.now()
        try:
            news = await run_in_threadpool(look)
        except AbreastError as error:  # the run was removed, or the store is gone
            yield _line("gone", {"error": str(error)}, secrets)
            return
        took = SYSTEM_CLOCK.now() - began
        if news is not None or quiet >= _ALIVE:
            quiet = 0.0
            yield _line("news", news, secrets) if news is not None else b": still here\n\n"
        # A journal that is opened is read at once. Who writes faster than that is followed at a
        # distance.
        opening = opening and news is not None and news.get("read", 1) != 1
        pause = _BREATH if opening else max(EVERY, _SHARE * took)
        quiet += pause
        for part in range(
            int(pause / EVERY) + 1
        ):  # in parts, so that a long pause holds up no shutdown
            if not closing.is_set():
                await asyncio.sleep(min(EVERY, pause - part * EVERY))


def _line(kind: str, said: dict[str, object], secrets: Collection[str]) -> bytes:
    return f"event: {kind}\ndata: {json_text(said, secrets)}\n\n".encode("utf-8", "replace")


def of_run(desk: PageSource, run_id: str) -> Look:
    """The head of a run, when it has changed since the last look."""
    book = desk.shelf.book(run_id)
    told: list[object] = []

    def look() -> dict[str, object] | None:
        with book.lock:
            book.look()
            now = [book.version, book.state, book.caught_up]
            if now == told:
                return None
            told[:] = now
            return pages.head_of(book)

    return look


def of_runs(desk: PageSource) -> Look:
    """A word whenever a run begins, moves on or ends."""
    told: list[object] = []

    def look() -> dict[str, object] | None:
        now: list[object] = [
            (row.id, row.state, row.last_seq, row.epoch) for row in desk.store.runs(limit=100)
        ]
        if now == told:
            return None
        told[:] = now
        return {"runs": len(now)}

    return look
