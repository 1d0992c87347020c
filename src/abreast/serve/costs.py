"""What the calls of a server cost while it runs."""

from abreast.core.outcome import NO_USAGE, Usage


class ServedTotals:
    """Counts the calls of a server while it runs."""

    def __init__(self) -> None:
        self.calls = 0
        self.failed = 0
        self.usage = NO_USAGE

    def add(self, used: Usage | None, *, failed: bool) -> None:
        """Count a call that has ended."""
        self.calls += 1
        self.failed += failed
        if used is not None:
            self.usage += used
