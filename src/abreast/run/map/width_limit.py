"""The window's width as a limit, so that items wait for it in the same queue as for lanes."""

from typing import Any

from abreast.core.outcome import Usage
from abreast.core.window import Window
from abreast.limits.limit import WHENEVER, Need, WaitingLine


class WidthLimit:
    """A limit that is full when the window is."""

    lent = False
    charged = False

    __slots__ = ("line", "window")

    def __init__(self, window: Window[Any]) -> None:
        self.window = window
        self.line = WaitingLine()

    def refusal(self, need: Need, now: float) -> float | None:  # noqa: ARG002 - by the Limit port
        """None if another item may execute."""
        return None if self.window.may_start else WHENEVER

    def take(self, need: Need, now: float) -> object:  # noqa: ARG002 - by the Limit port
        """Count one more item as executing."""
        self.window.start()
        return None

    def give(
        self,
        need: Need,  # noqa: ARG002 - by the Limit port
        handed: object,  # noqa: ARG002 - by the Limit port
        used: Usage | None,  # noqa: ARG002 - by the Limit port
        now: float,  # noqa: ARG002 - by the Limit port
    ) -> None:
        """Count one item fewer."""
        self.window.finish()
