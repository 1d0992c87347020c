"""A live line about a workflow: how many steps are done, and the newest one."""

from __future__ import annotations

from typing import Final

from abreast.cli.terminal.live_line import LiveLine
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, Event

_DRAW_INTERVAL: Final = 0.1  # seconds
_PATH_WIDTH: Final = 60  # characters


class WorkflowLine(LiveLine):
    """An observer of events that draws the line."""

    def __init__(self) -> None:
        """Start without steps."""
        super().__init__()
        self._done = self._failed = self._running = 0
        self._drawn = 0.0

    def __call__(self, event: Event) -> None:
        """Count the event, and draw at most ten times per second."""
        if event.kind == ITEM_STARTED:
            self._running += 1
        elif event.kind == ITEM_SETTLED:
            self._running = max(0, self._running - 1)
            self._done += event.data.get("state") == "done"
            self._failed += event.data.get("state") == "failed"
        else:
            return
        now = SYSTEM_CLOCK.now()
        if now - self._drawn < _DRAW_INTERVAL:
            return
        self._drawn = now
        failed = f", {self._failed} failed" if self._failed else ""
        where = event.path.partition("/")[2][-_PATH_WIDTH:]
        self.show(f"{self._done} done{failed}, {self._running} running  {where}")
