"""A plain map: its outcomes put together by what they are, so that thousands of items are a few lines."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar, Final

from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.port import RunRow
from abreast.views.job_view import many, mapping, short, value_in

_KINDS_KEPT: Final = 2_000  # of outcomes that are told apart
_SHOWN: Final = 20
_EXAMPLES: Final = 5
_TEXT: Final = 200


@dataclass(slots=True)
class _Group:
    state: str
    text: str
    count: int = 0
    examples: list[str] = field(default_factory=list)


class MapFold:
    """What items came to so far, equal ones together."""

    KINDS: ClassVar = frozenset({ITEM_SETTLED})

    def __init__(self) -> None:
        """Nothing yet."""
        self._groups: dict[tuple[str, str], _Group] = {}
        self._of: dict[str, _Group] = {}  # by path: an item that was tried again counts once
        self._others = _Group("", "")

    def add(self, event: Event) -> None:
        """Take in the next event."""
        state = str(event.data.get("state"))
        key = (state, _gist(event, state))
        if (before := self._of.pop(event.path, None)) is not None:
            before.count -= 1
            before.examples = [path for path in before.examples if path != event.path]
        group = self._groups.get(key)
        if group is None:
            group = self._others
            if len(self._groups) < _KINDS_KEPT:
                group = self._groups[key] = _Group(*key)
        group.count += 1
        self._of[event.path] = group
        if len(group.examples) < _EXAMPLES:
            group.examples.append(event.path)

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """The largest groups; failures first."""
        del run
        order = {"failed": 0, "cancelled": 1, "done": 2}
        kept = [group for group in self._groups.values() if group.count]
        kept.sort(key=lambda group: (order.get(group.state, 3), -group.count, group.text))
        shown = kept[:_SHOWN]
        left = sum(group.count for group in kept[_SHOWN:]) + self._others.count
        return {
            "state": state,
            "total": sum(group.count for group in kept) + self._others.count,
            "groups": [
                {"state": one.state, "text": one.text, "count": one.count, "examples": one.examples}
                for one in shown
            ],
            "cut": f"{many(left, 'item')} in other groups" if left else None,
        }


def _gist(event: Event, state: str) -> str:
    """What an outcome says in one line, by which equal ones are known."""
    if state == "cancelled":
        return short(event.data.get("reason"), _TEXT)
    value = value_in(event)
    if state == "failed":
        facts = mapping(value)
        return short(" ".join(str(facts.get("message") or facts.get("type") or "").split()), _TEXT)
    facts = mapping(value)
    if "stdout" in facts and "exit_code" in facts:
        value = facts["stdout"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return short(" ".join(text[: 4 * _TEXT].split()), _TEXT)
