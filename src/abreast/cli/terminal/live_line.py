"""A live line at the bottom of a terminal, redrawn in place and erased before other output."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from abreast.cli.errors import one_line
from abreast.cli.signals import Interrupts


class ClosableLine(Protocol):
    """A live line that can be erased permanently."""

    def close(self, *, wait: bool = True) -> None:
        """Erase it; nothing is drawn from now on.

        Without `wait`, it may stay if a thread is drawing at this moment.
        """


class LiveLine:
    """Draws a text on stderr in place of the previous one.

    Observers draw from several threads, hence the lock.
    """

    def __init__(self) -> None:
        """Nothing is drawn yet."""
        self._lock = threading.Lock()
        self._closed = False
        self._drawn_text = ""

    def show(self, text: str) -> None:
        """Draw it, unless the line is closed."""
        with self._lock:
            if not self._closed:
                self._write(one_line(text))

    def end(self) -> None:
        """Erase the line; a later event may draw it again."""
        with self._lock:
            self._write("")

    def close(self, *, wait: bool = True) -> None:
        """Erase the line permanently.

        Without `wait`, it may stay until the next call if a thread is drawing at this moment.
        """
        self._closed = True
        if self._lock.acquire(blocking=wait):
            try:
                if self._drawn_text:
                    self._write("")
            finally:
                self._lock.release()

    def _write(self, text: str) -> None:
        self._drawn_text = text
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()


@contextmanager
def closing_line(line: ClosableLine | None, interrupts: Interrupts) -> Iterator[None]:
    """Erase the line when the block ends or a signal arrives, before a message is printed."""
    if line is None:
        yield
        return
    interrupts.on_first_signal(lambda: line.close(wait=False))
    try:
        yield
    finally:
        line.close()
