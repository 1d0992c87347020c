"""The draw context: which draw of a sample the running code belongs to, and the events of draws."""

import logging
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

SAMPLE_STARTED: Final = "sample-started"
SAMPLE_ENDED: Final = "sample-ended"
DRAW_STARTED: Final = "draw-started"
DRAW_ENDED: Final = "draw-ended"


@dataclass(frozen=True, slots=True)
class DrawContext:
    """The draw that the running code belongs to; hooks, checks, log records and models see it."""

    branch: int
    """The branch, from 0."""
    round: int
    """The round of the branch, from 0."""
    number: int
    """`branch * depth + round + 1`: unique over all branches."""


CURRENT_DRAW: Final[ContextVar[DrawContext | None]] = ContextVar("abreast_draw", default=None)


def current_draw() -> DrawContext | None:
    """Return the draw that the running code belongs to; None outside of any.

    It has `branch`, `round` and `number`. Hooks, checks and models of your own can ask for it.
    """
    return CURRENT_DRAW.get()


class DrawFilter(logging.Filter):
    """Adds to every log record its `branch` and `round` (None outside of a draw)."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; never drops a record."""
        draw = CURRENT_DRAW.get()
        record.branch = draw.branch if draw else None
        record.round = draw.round if draw else None
        return True
