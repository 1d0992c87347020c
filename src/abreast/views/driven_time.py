"""The time for which a run had a driver, computed from its events."""

from abreast.core.events import RUN_RESUMED, Event


class DrivenTime:
    """Seconds since the run began, without the time between one driver and the next.

    Every driver's clock may start anywhere.
    """

    __slots__ = ("_offset", "now", "wall")

    def __init__(self) -> None:
        self.now = 0.0
        self.wall = 0.0  # the time of day of the newest event
        self._offset: float | None = None

    def take(self, event: Event) -> float:
        """Advance to the next event and return its time.

        The time never decreases, even if the system clock is set back.
        """
        if self._offset is None or event.kind == RUN_RESUMED:
            self._offset = self.now - event.mono
        self.now = max(self.now, event.mono + self._offset)
        self.wall = event.wall
        return self.now

    def of(self, event: Event) -> float:
        """The time of the event just taken, which may have been recorded some time after it."""
        return self.now if self._offset is None else min(self.now, event.mono + self._offset)

    def at(self, wall: float) -> float:
        """The time that corresponds to a time of day, while the run is driven."""
        return self.now + max(0.0, wall - self.wall)
