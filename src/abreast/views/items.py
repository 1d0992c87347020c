"""The results of a run: its items, kept in columns to be sorted and paged, and kinds of failure."""

import re
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from abreast.core.events import Event
from abreast.core.item import unescape
from abreast.views.job_view import listed, number, whole
from abreast.views.lane_rows import DONE, RUNNING, SEVERITY, SPECULATIVE, STATES
from abreast.views.run_reader import error_of

SORTS: Final = (
    "order",
    "key",
    "state",
    "lane",
    "began",
    "waited",
    "took",
    "attempts",
    "usd",
    "tokens",
)
"""What items can be sorted by; `order` is the order in which they were first seen."""
_WAITING_FIELDS: Final = ("queued", "waited", "backoff")

_MAX_KINDS: Final = 200  # counted separately; all further ones are counted as one
_MESSAGE_CHARACTERS: Final = 160  # of a message that are compared and kept
_NUMBER: Final = re.compile(r"\d+")
_OTHERS: Final = ("others", "")


class Items:
    """All items that were started or have ended, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.counts = dict.fromkeys(STATES, 0)
        self.state = bytearray()
        self._places: dict[str, int] = {}
        self._nested = bytearray()
        self._lanes: list[str] = []
        self._columns: dict[str, array[Any]] = {
            "began": array("d"),
            "waited": array("d"),
            "took": array("d"),
            "attempts": array("l"),
            "usd": array("d"),
            "tokens": array("l"),
            "error": array("l"),
        }

    def __len__(self) -> int:
        return len(self.paths)

    def find(self, path: str) -> int:
        """The index of an item; -1 if it was never seen."""
        return self._places.get(path, -1)

    def begin(self, path: str, lane: str, since: float, start: float) -> int:
        """Record that an attempt at an item starts; return the item's index."""
        at = self._places.get(path)
        if at is None:
            at = self._places[path] = len(self.paths)
            self.paths.append(path)
            self.state.append(SEVERITY[RUNNING])
            self.counts[RUNNING] += 1
            self._lanes.append(lane)
            for column, value in zip(
                self._columns.values(), (start, start - since, 0.0, 1, 0.0, 0, -1), strict=True
            ):
                column.append(value)
        else:
            self._mark(at, RUNNING)
            self._columns["attempts"][at] += 1
        return at

    def settle(self, event: Event, lane: str, state: str, now: float, error: int) -> None:
        """Record the outcome of an item."""
        at = self._places.get(event.path)
        if at is None:
            at = self.begin(event.path, lane, now, now)
        self._mark(at, state)
        data = event.data
        numbers = {name: number(value) or 0.0 for name, value in data.items()}
        columns = self._columns
        columns["error"][at] = error
        columns["took"][at] = (
            sum(listed(data["service"])) if "service" in data else now - columns["began"][at]
        )
        columns["waited"][at] = sum(numbers.get(name, 0.0) for name in _WAITING_FIELDS)
        columns["attempts"][at] = whole(data.get("attempts", 1)) or 1
        if "requests" in data:
            columns["usd"][at] = numbers.get("usd", 0.0)
            columns["tokens"][at] = int(
                sum(numbers.get(name, 0) for name in ("input_tokens", "output_tokens"))
            )

    def end(self, path: str, state: str, now: float) -> None:
        """End an item without an outcome: its driver is gone, or its map has ended."""
        at = self.find(path)
        if at >= 0 and self.state[at] == SEVERITY[RUNNING]:
            self._mark(at, state)
            self._columns["took"][at] = now - self._columns["began"][at]

    def take_up(self) -> None:
        """Count speculative items as done: a later driver uses what ended after an interrupt."""
        if self.counts[SPECULATIVE]:
            before, after = (bytes((SEVERITY[state],)) for state in (SPECULATIVE, DONE))
            self.state = self.state.replace(before, after)
            self.counts[DONE] += self.counts[SPECULATIVE]
            self.counts[SPECULATIVE] = 0

    def _mark(self, at: int, state: str) -> None:
        self.counts[STATES[self.state[at]]] -= 1
        self.counts[state] += 1
        self.state[at] = SEVERITY[state]

    # --- reading ----------------------------------------------------------------------------------

    def page(
        self,
        *,
        sort: str,
        down: bool,
        states: Sequence[str],
        lane: str,
        text: str,
        error: int | None,
        at: int,
        most: int,
        said: Collection[str] = (),
        top: bool = False,
    ) -> tuple[int, list[dict[str, object]]]:
        """How many items match, and at most `most` of their rows from `at` on.

        An item matches `text` by its path, or if its path is in `said`; with `top`, items beneath
        other items don't match.
        """
        nested = self.nested() if top else None
        wanted = {SEVERITY[state] for state in states if state in STATES}
        errors = self._columns["error"]
        sought = text.lower()
        places = [
            one
            for one, path in enumerate(self.paths)
            if (not states or self.state[one] in wanted)
            and (not lane or self._lanes[one] == lane)
            and (error is None or errors[one] == error)
            and (nested is None or not nested[one])
            and (sought in path.lower() or path in said)
        ]
        keys: dict[str, Sequence[Any]] = {
            "order": range(len(self.paths)),
            "key": self.paths,
            "state": self.state,
            "lane": self._lanes,
            **self._columns,
        }
        places.sort(key=keys[sort].__getitem__, reverse=down)
        return len(places), [self.row(one) for one in places[at : at + most]]

    def nested(self) -> bytearray:
        """Which items are beneath another one, by their index; kept until there are more items."""
        if len(self._nested) != len(self.paths):
            known = self._places
            heads: dict[str, bool] = {}  # of paths that are no items: whether one above is

            def is_beneath(path: str) -> bool:
                head = path.rpartition("/")[0]
                if not head:
                    return False
                if head not in heads:
                    heads[head] = head in known or is_beneath(head)
                return heads[head]

            self._nested = bytearray(map(is_beneath, self.paths))
        return self._nested

    def row(self, at: int) -> dict[str, object]:
        """One item as a row, in JSON's own types."""
        path = self.paths[at]
        values = {name: column[at] for name, column in self._columns.items()}
        return {
            "path": path,
            "key": unescape(path.rpartition("/")[2]),
            "state": STATES[self.state[at]],
            "lane": self._lanes[at],
            **values,
            **{name: round(values[name], 4) for name in ("began", "waited", "took")},
        }


@dataclass(slots=True)
class FailureKind:
    """Failures of one type whose messages differ only in their numbers, with an example."""

    type: str
    message: str
    path: str
    items: int = 0
    retried: int = 0
    last: float = 0.0


def failure_mark(kind: str, message: str) -> tuple[str, str]:
    """Equal for failures of one type whose messages differ only in their numbers."""
    first_line = message.strip().partition("\n")[0]
    return kind, _NUMBER.sub("#", first_line[:_MESSAGE_CHARACTERS])


class FailureKinds:
    """The kinds of failure, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.kinds: list[FailureKind] = []
        self._places: dict[tuple[str, str], int] = {}

    def add(self, event: Event, *, retried: bool = False) -> int:
        """Count a failure; return the index of its kind."""
        error = error_of(event)
        message = error.message.strip().partition("\n")[0]
        key = failure_mark(error.kind, message)
        if key not in self._places and len(self.kinds) >= _MAX_KINDS:
            key = _OTHERS
        at = self._places.get(key)
        if at is None:
            at = self._places[key] = len(self.kinds)
            self.kinds.append(FailureKind(error.kind, message[:_MESSAGE_CHARACTERS], event.path))
        kind = self.kinds[at]
        kind.last = event.wall
        if retried:
            kind.retried += 1
        else:
            kind.items += 1
        return at
