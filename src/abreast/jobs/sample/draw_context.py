"""Which draw of a sample the running code works for: what hooks, checks, log records and models see."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class DrawContext:
    """Which draw the running code works for: what hooks, checks, log records and models see."""

    branch: int
    round: int
    number: int


HERE: Final[ContextVar[DrawContext | None]] = ContextVar("abreast_draw", default=None)


def current_draw() -> DrawContext | None:
    """The draw that the running code works for; None outside of any."""
    return HERE.get()


class DrawFilter(logging.Filter):
    """Gives every log record the `branch` and `round` it belongs to (None outside of a draw)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add them."""
        here = HERE.get()
        record.branch = here.branch if here else None
        record.round = here.round if here else None
        return True
