"""One live line about candidates: whose behaviour is checked, who is measured, how many are over."""

from __future__ import annotations

from abreast.cli.terminal.live_line import LiveLine
from abreast.core.events import ITEM_SETTLED, ITEM_STARTED, Event


class CandidatesLine(LiveLine):
    """An observer of events."""

    def __init__(self) -> None:
        """Nothing goes on yet."""
        super().__init__()
        self._checked: list[str] = []
        self._measured = ""
        self._ended: set[str] = set()

    def __call__(self, event: Event) -> None:
        """Follow what begins and ends; draw."""
        parts = event.path.split("/")
        if event.kind not in {ITEM_STARTED, ITEM_SETTLED} or len(parts) < 4:  # noqa: PLR2004 - run, tries, map, item
            return
        began, kind, name = event.kind == ITEM_STARTED, parts[2], parts[3]
        if kind.startswith("measure"):
            self._measured = name if began else ""
            self._ended |= set() if began else {name}
        elif kind.startswith("candidate") and len(parts) > 4 and parts[4].startswith("behaviour"):  # noqa: PLR2004
            if began:
                self._checked.append(name)
            elif name in self._checked:
                self._checked.remove(name)
                self._ended.add(name)
        self.show(self.text())

    def text(self) -> str:
        """The line."""
        if self._measured:
            return f"measuring {self._measured}, alone"
        lanes = "  ".join(f"[{name}]" for name in self._checked)
        return f"behaviour  {lanes}  {len(self._ended)} checked"
