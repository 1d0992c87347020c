"""The time that a run was driven, told from its events: over all of its drivers, without what lies between them."""

from __future__ import annotations

from abreast.core.events import RUN_RESUMED, Event


class DrivenTime:
    """Seconds since the run began, as far as somebody drove it.

    Every driver's clock may start anywhere.
    """

    __slots__ = ("_offset", "now", "wall")

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.now = 0.0
        self.wall = 0.0
        """The time of day of the newest event."""
        self._offset: float | None = None

    def take(self, event: Event) -> float:
        """When the next event happened.

        Never less than the one before: a clock that is set back is not believed.
        """
        if self._offset is None or event.kind == RUN_RESUMED:
            self._offset = self.now - event.mono
        self.now = max(self.now, event.mono + self._offset)
        self.wall = event.wall
        return self.now

    def at(self, wall: float) -> float:
        """The time at a time of day, while the run is driven."""
        return self.now + max(0.0, wall - self.wall)
