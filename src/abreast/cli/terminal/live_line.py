"""A live line at the bottom of a terminal, redrawn in place and erased before other output."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from abreast.cli.errors import one_line
from abreast.cli.signals import Interrupts
from abreast.core.clock import SYSTEM_CLOCK
from abreast.models.embedded.loading import LOADING
from abreast.views.job_view import LiveText


def wants_progress() -> bool:
    """Whether a live line can be drawn: stderr is a terminal that can move its cursor."""
    return (
        sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    )


def runs_in_ci() -> bool:
    """Whether the output goes to a log of continuous integration: `CI` is set, as servers do."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


class LiveLine:
    """Draws what a job tells about its progress on stderr; an observer of events.

    Observers draw from several threads, hence the lock.
    """

    def __init__(self, source: LiveText) -> None:
        """Draw the parts of `source`, as often as it wants."""
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._source = source
        self._lock = threading.Lock()
        self._due = SYSTEM_CLOCK.now() + source.delay
        self._visible = self._closed = False
        LOADING.listen(self._redraw)

    def __call__(self, *news: Any) -> None:
        """Hand news to the source, and draw the line if it has changed and it is time."""
        changed, now = self._source.add(*news), SYSTEM_CLOCK.now()
        if changed and now >= self._due:
            self._due = now + self._source.interval
            with self._lock:
                self._draw()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Erase the line while something else is written, and draw it again."""
        with self._lock:
            visible = self._visible
            self._erase()
            yield
            if visible:
                self._draw()

    def end(self) -> None:
        """Erase the line; a later event may draw it again."""
        with self._lock:
            self._erase()

    def close(self, *, wait: bool = True) -> None:
        """Erase the line permanently.

        Without `wait`, it may stay until the next call if a thread is drawing at this moment.
        """
        self._closed = True
        LOADING.unlisten(self._redraw)
        if self._lock.acquire(blocking=wait):
            try:
                self._erase()
            finally:
                self._lock.release()

    def _redraw(self) -> None:
        """Draw it at once: a model begins to be loaded, or is there."""
        with self._lock:
            self._draw()

    def _draw(self) -> None:
        from rich.text import Text

        self._erase()
        if not self._closed:
            told = [*self._source.parts(), *((text, "yellow") for text in LOADING.texts)]
            parts = [(one_line(text), style) for text, style in told if text]
            self._console.print(
                Text("  ").join(Text(*part) for part in parts),
                end="",
                no_wrap=True,
                overflow="ellipsis",
                crop=True,
            )
            self._visible = True

    def _erase(self) -> None:
        if self._visible:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._visible = False


@contextmanager
def closing_line(line: LiveLine | None, interrupts: Interrupts) -> Iterator[None]:
    """Erase the line when the block ends or a signal arrives, before a message is printed."""
    if line is None:
        yield
        return
    interrupts.on_first_signal(lambda: line.close(wait=False))
    try:
        yield
    finally:
        line.close()
