"""A live line about candidates: which are being checked, which is measured, how many are done."""

from __future__ import annotations

from typing import Final

from abreast.cli.terminal.live_line import LiveLine
from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, Event

_ITEM_PARTS: Final = 4  # of a path: run/tries/map/item


class CandidatesLine(LiveLine):
    """An observer of events that draws the line."""

    def __init__(self) -> None:
        """Start without candidates."""
        super().__init__()
        self._checked: list[str] = []
        self._measured = ""
        self._ended: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Update the line if the event starts or ends a check or a measurement."""
        parts = event.path.split("/")
        if event.kind not in {ITEM_STARTED, ITEM_SETTLED} or len(parts) < _ITEM_PARTS:
            return
        began, kind, name = event.kind == ITEM_STARTED, parts[2], parts[3]
        if kind.startswith("measure"):
            self._measured = name if began else ""
            self._ended |= set() if began else {name}
        elif kind.startswith("candidate") and _is_behaviour_check(parts):
            if began:
                self._checked.append(name)
            elif name in self._checked:
                self._checked.remove(name)
                self._ended.add(name)
        self.show(self.text())

    def text(self) -> str:
        """The line's text."""
        if self._measured:
            return f"measuring {self._measured}, alone"
        lanes = "  ".join(f"[{name}]" for name in self._checked)
        return f"behaviour  {lanes}  {len(self._ended)} checked"


def _is_behaviour_check(parts: list[str]) -> bool:
    return len(parts) > _ITEM_PARTS and parts[_ITEM_PARTS].startswith("behaviour")
