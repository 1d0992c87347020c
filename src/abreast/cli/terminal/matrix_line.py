"""A live line about a study: cells, lanes, 429s, cost so far and in all, and the time left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from abreast.cli.terminal.live_line import LiveLine
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.outcome import Outcome
from abreast.jobs.matrix.call_notes import LaneCount
from abreast.jobs.matrix.job import LaneTally, MatrixTally

_DRAW_INTERVAL: Final = 0.1  # seconds
_MINUTE: Final = 60.0  # seconds
_MAX_OF_UNIT: Final = 90  # from here on the next larger unit is used


class MatrixLine(LiveLine):
    """Is called for each cell that ends, and draws at most ten times per second."""

    def __init__(
        self, cells: Mapping[str, int], widths: Mapping[str, int], now: float | None = None
    ) -> None:
        """Take each lane's number of cells and width; `now` replaces the clock's start time."""
        super().__init__()
        self._cells = cells
        self._widths = widths
        self._tally = MatrixTally()
        self._lanes: Mapping[str, LaneCount] = {}
        self._started_at = SYSTEM_CLOCK.now() if now is None else now
        self._drawn = 0.0

    def watch(self, tally: MatrixTally, lanes: Mapping[str, LaneCount]) -> None:
        """Draw from these counts."""
        self._tally, self._lanes = tally, lanes

    def __call__(self, _lane: str, _outcome: Outcome[Any]) -> None:
        """Draw the line, as a cell has ended."""
        now = SYSTEM_CLOCK.now()
        if now - self._drawn >= _DRAW_INTERVAL:
            self._drawn = now
            self.show(self.text(now))

    def text(self, now: float) -> str:
        """The line's text."""
        tally = self._tally
        lanes = "  ".join(
            f"{name} {lane.now}/{self._widths.get(name, lane.now)}"
            for name, lane in self._lanes.items()
        )
        rejections = sum(lane.throttled for lane in self._lanes.values())
        parts = [
            f"{tally.done + tally.failed}/{sum(self._cells.values())} cells",
            tally.failed and f"{tally.failed} failed",
            lanes,
            rejections and f"{rejections} x 429",
            self._cost_text(),
            self._remaining_text(now),
        ]
        return "  ".join(str(part) for part in parts if part)

    def _cost_text(self) -> str:
        """The cost so far, and the cost at the end if further cells cost the same on average."""
        lanes_by_name = self._tally.lanes
        spent = sum(lane.usd for lane in lanes_by_name.values())
        whole = spent + sum(
            lane.usd / _ended(lane) * self._open_cells(name)
            for name, lane in lanes_by_name.items()
            if _ended(lane)
        )
        return f"{spent:.4g} of about {whole:.3g} usd" if spent else ""

    def _remaining_text(self, now: float) -> str:
        """The time until the last lane ends, from the cells that this driver has run.

        It is computed for each lane, as lanes have different speeds.
        """
        seconds_left = {
            name: (now - self._started_at) / lane.fresh * self._open_cells(name)
            for name, lane in self._tally.lanes.items()
            if lane.fresh
        }
        last = max(seconds_left, key=lambda name: seconds_left[name], default=None)
        return "" if last is None else f"{_duration_text(seconds_left[last])} left ({last})"

    def _open_cells(self, name: str) -> int:
        return max(0, self._cells.get(name, 0) - _ended(self._tally.lanes[name]))


def _ended(lane: LaneTally) -> int:
    return lane.done + lane.failed


def _duration_text(seconds: float) -> str:
    if seconds < _MAX_OF_UNIT:
        return f"{seconds:.0f} s"
    minutes = seconds / _MINUTE
    return f"{minutes:.0f} min" if minutes < _MAX_OF_UNIT else f"{minutes / _MINUTE:.1f} h"
