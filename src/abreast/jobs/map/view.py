"""The view of a plain map: equal outcomes in groups, so that many fit in a few lines."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.port import RunRow
from abreast.views.items import failure_mark
from abreast.views.job_view import LiveText, many, mapping, short, value_in
from abreast.views.progress import RunProgress

_MAX_GROUPS: Final = 2_000  # further outcomes are counted together
_MAX_GROUPS_SHOWN: Final = 20
_MAX_EXAMPLES: Final = 5
_TEXT_CHARACTERS: Final = 200


@dataclass(slots=True)
class _Group:
    state: str
    text: str
    count: int = 0
    examples: list[str] = field(default_factory=list)


class MapView:
    """Groups the outcomes of items so far."""

    KINDS: ClassVar = frozenset({ITEM_SETTLED})

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Group] = {}
        self._group_by_path: dict[str, _Group] = {}  # an item that was retried counts once
        self._others = _Group("", "")

    def add(self, event: Event) -> None:
        """Add the next event."""
        state = str(event.data.get("state"))
        text, mark = _summary(event, state)
        key = (state, mark)
        if (before := self._group_by_path.pop(event.path, None)) is not None:
            before.count -= 1
            before.examples = [path for path in before.examples if path != event.path]
        group = self._groups.get(key)
        if group is None:
            group = self._others
            if len(self._groups) < _MAX_GROUPS:
                group = self._groups[key] = _Group(state, text)
        group.count += 1
        self._group_by_path[event.path] = group
        if len(group.examples) < _MAX_EXAMPLES:
            group.examples.append(event.path)

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """Return the largest groups, failures first."""
        del run
        order = {"failed": 0, "cancelled": 1, "done": 2}
        kept = [group for group in self._groups.values() if group.count]
        kept.sort(key=lambda group: (order.get(group.state, 3), -group.count, group.text))
        shown = kept[:_MAX_GROUPS_SHOWN]
        left = sum(group.count for group in kept[_MAX_GROUPS_SHOWN:]) + self._others.count
        return {
            "state": state,
            "total": sum(group.count for group in kept) + self._others.count,
            "worth": any(group.count > 1 for group in kept),  # else all outcomes differ
            "groups": [
                {"state": one.state, "text": one.text, "count": one.count, "examples": one.examples}
                for one in shown
            ],
            "cut": f"{many(left, 'item')} in other groups" if left else None,
        }


class MapLive(LiveText):
    """The live line of a map: items done, items read, items per second, and what they cost."""

    delay = 0.1

    def __init__(self, name: str, progress: RunProgress | None = None) -> None:
        """Start from the counts of earlier drivers."""
        self._name = name
        self._progress = progress or RunProgress()
        self._over_before = self._progress.over
        self._started_at = SYSTEM_CLOCK.now()

    def add(self, event: Event) -> bool:
        """Count the event."""
        self._progress.add(event)
        return True

    def parts(self) -> Iterator[tuple[str, str]]:
        """The parts of the line, each with its style."""
        now = self._progress
        elapsed = max(SYSTEM_CLOCK.now() - self._started_at, 1e-3)
        used = now.costs.total
        tokens = round(used["input"] + used["output"])
        yield self._name, ""
        yield f"{now.over}/{now.read}{'+' if now.total is None else ''}", ""
        yield f"{now.running} running", "cyan"
        yield f"{now.ended['failed']} failed" if now.ended["failed"] else "", "red"
        yield f"{(now.over - self._over_before) / elapsed:.1f}/s", "dim"
        yield f"{tokens:,} tokens" if tokens else "", "dim"
        yield f"{used['usd']:.4g} usd" if used["usd"] else "", "dim"
        yield now.batches.text(), "cyan"
        yield f"held {now.rejections} times" if now.rejections else "", "yellow"
        yield now.agents.text(), "dim"


def _summary(event: Event, state: str) -> tuple[str, str]:
    """An outcome in one line, and what is equal for outcomes of one group.

    Values are in one group if their lines are equal; failures also if they differ only in numbers,
    as in the list of errors.
    """
    if state == "cancelled":
        reason = short(event.data.get("reason"), _TEXT_CHARACTERS)
        return reason, reason
    value = value_in(event)
    facts = mapping(value)
    if state == "failed":
        message = str(facts.get("message") or facts.get("type") or "")
        mark = " ".join(failure_mark(str(facts.get("type") or ""), message))
        return short(" ".join(message.split()), _TEXT_CHARACTERS), mark
    if "stdout" in facts and "exit_code" in facts:
        value = facts["stdout"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = short(" ".join(text[: 4 * _TEXT_CHARACTERS].split()), _TEXT_CHARACTERS)
    return line, line
