"""The loop that drives a command's work: it looks for what came in at every third turn, while there is work to do."""

from __future__ import annotations

import asyncio
import selectors
from typing import Final

_MOST: Final = 2  # turns in a row without a look


class _Seldom(selectors.DefaultSelector):
    """A selector that doesn't ask the system as long as the loop has callbacks to call, two times in three.

    An item's end takes the loop three turns (its task goes on, its outcome is handed over, the next is started), and a
    look at each of them takes as long as what is done there.
    """

    _passed_over = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What has come in; nothing, where that isn't waited for and there was a look just before."""
        if timeout == 0 and self._passed_over < _MOST:
            self._passed_over += 1
            return []
        self._passed_over = 0
        return super().select(timeout)


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop for `asyncio.Runner`."""
    return asyncio.SelectorEventLoop(_Seldom())
