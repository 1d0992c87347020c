"""One live line about a study: cells, lanes, 429s, what it has cost, and when it will end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.outcome import Outcome
from abreast.jobs.matrix.bench import LaneCount
from abreast.jobs.matrix.cells import Tally

_EVERY: Final = 0.1


class StudyLine:
    """Hears of each cell that ends, and draws once in a while."""

    def __init__(self, cells: int, width: int) -> None:
        """Of so many cells, so many at once in each lane."""
        self._cells = cells
        self._width = width
        self._tally = Tally()
        self._lanes: Mapping[str, LaneCount] = {}
        self._began = SYSTEM_CLOCK.now()
        self._drawn = 0.0

    def watch(self, tally: Tally, lanes: Mapping[str, LaneCount]) -> None:
        """Look at these when drawing."""
        self._tally, self._lanes = tally, lanes

    def __call__(self, _lane: str, _outcome: Outcome[Any]) -> None:
        """A cell has ended."""
        now = SYSTEM_CLOCK.now()
        if now - self._drawn >= _EVERY:
            self._drawn = now
            sys.stderr.write(f"\r\x1b[2K{self.text(now)}")
            sys.stderr.flush()

    def text(self, now: float) -> str:
        """The line."""
        tally = self._tally
        ended = tally.done + tally.failed
        lanes = "  ".join(f"{name} {lane.now}/{self._width}" for name, lane in self._lanes.items())
        turned = sum(lane.throttled for lane in self._lanes.values())
        usd = sum(lane.usd for lane in tally.lanes.values())
        left = (now - self._began) / ended * (self._cells - ended) if ended else 0.0
        parts = [
            f"{ended}/{self._cells} cells", tally.failed and f"{tally.failed} failed", lanes,
            turned and f"{turned} x 429", usd and f"{usd:.4g} usd", f"{left:.0f} s left",
        ]  # fmt: skip
        return "  ".join(str(part) for part in parts if part)

    def end(self) -> None:
        """Take the line away."""
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()
