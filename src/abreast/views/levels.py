"""Numbers over time for a drawing: the window of time that it shows, and levels within it."""

from collections import deque
from typing import Final

_FIRST_WINDOW: Final = 0.25  # seconds; the window of a whole run grows with it from here


class TimeWindow:
    """The time that a drawing can show: the last `seconds`, or the whole run so far."""

    def __init__(self, seconds: float, grains: int, *, whole: bool) -> None:
        """Divide the window into `grains`: what is shorter than one is merged."""
        self.seconds = _FIRST_WINDOW if whole else seconds
        self.whole = whole
        self._grains = grains

    @property
    def grain(self) -> float:
        """Seconds of the shortest thing that can be seen."""
        return self.seconds / self._grains

    def grow(self, now: float) -> None:
        """Show the time up to `now`: a whole run is shown in coarser steps as it gets longer."""
        while self.whole and now > self.seconds:
            self.seconds *= 2

    def begin(self, now: float) -> float:
        """The earliest time that is shown."""
        return 0.0 if self.whole else max(0.0, now - self.seconds)


class LaneLevel:
    """A number over time, such as how many items wait.

    Each step has its time, its highest value and its last value.
    """

    def __init__(self, window: TimeWindow) -> None:
        """Start at zero; steps that are no longer within the window are forgotten."""
        self.value = 0
        self.steps: deque[tuple[float, int, int]] = deque()
        self._window = window

    def change(self, by: int, now: float) -> None:
        """Add `by` to the number; changes within one grain are one step."""
        began, high = now, self.value
        if self.steps and now - self.steps[-1][0] < self._window.grain:
            began, high, _ = self.steps.pop()
        self.value += by
        self.steps.append((began, max(high, self.value), self.value))
        while len(self.steps) > 1 and self.steps[1][0] < self._window.begin(now):
            self.steps.popleft()
