"""Server-sent events: one whenever a poll of the store finds something new.

Polling does not hold up the drivers of the runs.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError
from abreast.web import pages
from abreast.web.damaged_runs import list_runs
from abreast.web.pages import PageSource, json_text

POLL_INTERVAL: Final = 0.5
"""Seconds between two polls, at least."""
# A pause is at least so many times as long as the poll before it, so that polling does not slow
# down the driver that writes.
_PAUSE_FACTOR: Final = 12
# Seconds between two parts of a journal that is being opened, so that other requests are served.
_OPENING_PAUSE: Final = 0.02
# Seconds without an event after which a comment is sent, so that both sides notice a dead
# connection.
_KEEPALIVE_INTERVAL: Final = 10.0

Poll = Callable[[], "dict[str, object] | None"]


def stream(
    request: Request, poll: Poll, closing: threading.Event, secrets: Collection[str] = ()
) -> StreamingResponse:
    """Stream what `poll` returns, without secrets, until the server is closing.

    A poll that returns None found nothing new.
    """
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(
        _lines(request, poll, closing, secrets), media_type="text/event-stream", headers=headers
    )


async def _lines(
    request: Request, poll: Poll, closing: threading.Event, secrets: Collection[str]
) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    quiet, opening = 0.0, True
    while not closing.is_set() and not await request.is_disconnected():
        began = SYSTEM_CLOCK.now()
        try:
            news = await run_in_threadpool(poll)
        except AbreastError as error:  # the run was removed, or the store is gone
            yield _line("gone", {"error": str(error)}, secrets)
            return
        took = SYSTEM_CLOCK.now() - began
        if news is not None or quiet >= _KEEPALIVE_INTERVAL:
            quiet = 0.0
            yield _line("news", news, secrets) if news is not None else b": still here\n\n"
        # A journal that is being opened is read with short pauses only. A driver that writes faster
        # than that is followed with a delay.
        opening = opening and news is not None and news.get("read", 1) != 1
        pause = _OPENING_PAUSE if opening else max(POLL_INTERVAL, _PAUSE_FACTOR * took)
        quiet += pause
        # In parts, so that a long pause does not delay the shutdown.
        for part in range(int(pause / POLL_INTERVAL) + 1):
            if not closing.is_set():
                await asyncio.sleep(min(POLL_INTERVAL, pause - part * POLL_INTERVAL))


def _line(kind: str, content: dict[str, object], secrets: Collection[str]) -> bytes:
    return f"event: {kind}\ndata: {json_text(content, secrets)}\n\n".encode("utf-8", "replace")


def of_run(source: PageSource, run_id: str) -> Poll:
    """A poll that returns the head of a run if it has changed since the last one."""
    run = source.reader.get(run_id)
    sent: list[object] = []

    def poll() -> dict[str, object] | None:
        with run.lock:
            run.refresh()
            now = [run.version, run.state, run.caught_up]
            if now == sent:
                return None
            sent[:] = now
            return pages.head_of(run)

    return poll


def of_runs(source: PageSource) -> Poll:
    """A poll that returns the number of runs if one has begun, moved on or ended."""
    sent: list[object] = []

    def poll() -> dict[str, object] | None:
        rows, damage = list_runs(source.store, 100)
        now: list[object] = [(row.id, row.state, row.last_seq, row.epoch) for row in rows]
        now += damage.items()
        if now == sent:
            return None
        sent[:] = now
        return {"runs": len(now)}

    return poll
