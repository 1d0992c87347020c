"""The live line of a map: items done, items read, and items per second."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from abreast.cli.errors import one_line
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.events import (
    ATTEMPT_FAILED,
    CALL_SETTLED,
    ITEM_READ,
    ITEM_SETTLED,
    ITEM_STARTED,
    ITEMS_COMPLETE,
    LIMIT_CHANGED,
    Event,
    count_read,
)

if TYPE_CHECKING:
    from rich.text import Text

_DRAW_INTERVAL: Final = 0.1  # seconds


def wants_progress() -> bool:
    """Whether a live line can be drawn: stderr is a terminal that can move its cursor."""
    return (
        sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    )


class Progress:
    """An observer of events that draws the line; the printer writes inside `aside`."""

    def __init__(
        self, name: str, *, read: int = 0, complete: bool = False, done: int = 0, failed: int = 0
    ) -> None:
        """Start from the counts of earlier drivers."""
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._lock = threading.RLock()
        self._name = name
        self._read, self._complete = read, complete
        self._done, self._failed, self._running = done, failed, 0
        self._done_before = done + failed
        self._started_at = self._drawn = SYSTEM_CLOCK.now()
        self._visible = self._closed = False
        self._tokens, self._usd, self._rejections = 0, 0.0, 0

    def __call__(self, event: Event) -> None:
        """Count the event, and draw at most ten times per second."""
        if event.kind == ITEM_READ:
            self._read += count_read(event)
        elif event.kind == ITEMS_COMPLETE:
            self._complete = True
        elif event.kind == ITEM_STARTED:
            self._running += 1
        elif event.kind == ATTEMPT_FAILED:
            self._running -= 1
        elif event.kind == CALL_SETTLED:
            self._count_call(event)
        elif event.kind == LIMIT_CHANGED and event.data.get("cause") == "429":
            self._rejections += 1
        elif event.kind == ITEM_SETTLED:
            self._running -= 1
            self._done += event.data.get("state") == "done"
            self._failed += event.data.get("state") == "failed"
        now = SYSTEM_CLOCK.now()
        if now - self._drawn >= _DRAW_INTERVAL:
            self._drawn = now
            with self._lock:
                self._draw()

    def _count_call(self, event: Event) -> None:
        data: Mapping[str, Any] = event.data
        self._tokens += data.get("input_tokens", 0) + data.get("output_tokens", 0)
        self._usd += data.get("usd") or 0.0

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Erase the line while something else is written, and draw it again."""
        with self._lock:
            visible = self._visible
            self._erase()
            yield
            if visible:
                self._draw()

    def close(self, *, wait: bool = True) -> None:
        """Erase the line permanently.

        Without `wait`, it may stay until the next call if a thread is writing at this moment.
        """
        self._closed = True
        if self._lock.acquire(blocking=wait):
            try:
                self._erase()
            finally:
                self._lock.release()

    def _draw(self) -> None:
        self._erase()
        if self._closed:
            return
        self._console.print(self._line(), end="", no_wrap=True, overflow="ellipsis", crop=True)
        self._visible = True

    def _erase(self) -> None:
        from rich.control import Control
        from rich.segment import ControlType

        if self._visible:
            self._console.control(
                Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
            )
            self._visible = False

    def _line(self) -> Text:
        from rich.text import Text

        over = self._done + self._failed
        elapsed = max(SYSTEM_CLOCK.now() - self._started_at, 1e-3)
        line = Text(f"{one_line(self._name)}  {over}/{self._read}{'' if self._complete else '+'}  ")
        line.append(f"{self._running} running", "cyan")
        if self._failed:
            line.append(f"  {self._failed} failed", "red")
        line.append(f"  {(over - self._done_before) / elapsed:.1f}/s", "dim")
        if self._tokens:
            line.append(f"  {self._tokens:,} tokens", "dim")
        if self._usd:
            line.append(f"  {self._usd:.4g} usd", "dim")
        return (
            line.append(f"  held {self._rejections} times", "yellow") if self._rejections else line
        )
