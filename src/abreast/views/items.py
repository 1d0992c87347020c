"""The items of a run, kept in columns: found by path, sorted, filtered and paged."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from abreast.core.events import Event
from abreast.core.item import unescape
from abreast.views.attempts import DONE, RUNNING, SPECULATIVE, STATES

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


class Items:
    """All items that were started or have ended, in the order in which they were first seen."""

    def __init__(self) -> None:
        """Start with no items."""
        self.paths: list[str] = []
        self.counts = [0] * len(STATES)
        self.state = bytearray()
        self._places: dict[str, int] = {}
        self._lanes: list[str] = []
        self._attempts = array("l")
        self._error = array("l")
        self._began = array("d")
        self._waited = array("d")
        self._took = array("d")
        self._usd = array("d")
        self._tokens = array("l")

    def __len__(self) -> int:
        """Return the number of items."""
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
            self.state.append(RUNNING)
            self.counts[RUNNING] += 1
            self._lanes.append(lane)
            self._attempts.append(1)
            self._error.append(-1)
            self._began.append(start)
            self._waited.append(start - since)
            self._took.append(0.0)
            self._usd.append(0.0)
            self._tokens.append(0)
        else:
            self._mark(at, RUNNING)
            self._attempts[at] += 1
        return at

    def settle(self, event: Event, lane: str, state: int, now: float, error: int) -> None:
        """Record the outcome of an item."""
        at = self._places.get(event.path)
        if at is None:
            at = self.begin(event.path, lane, now, now)
        data = event.data
        service = data.get("service")
        self._mark(at, state)
        self._error[at] = error
        self._took[at] = sum(service) if isinstance(service, list) else now - self._began[at]
        self._waited[at] = sum(_number(data[name]) for name in _WAITING_FIELDS if name in data)
        attempts = data.get("attempts")
        self._attempts[at] = attempts if isinstance(attempts, int) else 1
        if "requests" in data:
            self._usd[at] = _number(data.get("usd"))
            self._tokens[at] = int(
                _number(data.get("input_tokens")) + _number(data.get("output_tokens"))
            )

    def end(self, at: int, state: int, now: float) -> None:
        """End an item without an outcome: its driver is gone, or its map has ended."""
        if at >= 0 and self.state[at] == RUNNING:
            self._mark(at, state)
            self._took[at] = now - self._began[at]

    def take_up(self) -> None:
        """Count speculative items as done: a later driver uses what ended after an interrupt."""
        if self.counts[SPECULATIVE]:
            self.state = self.state.replace(bytes((SPECULATIVE,)), bytes((DONE,)))
            self.counts[DONE] += self.counts[SPECULATIVE]
            self.counts[SPECULATIVE] = 0

    def _mark(self, at: int, state: int) -> None:
        self.counts[self.state[at]] -= 1
        self.counts[state] += 1
        self.state[at] = state

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
    ) -> tuple[int, list[dict[str, object]]]:
        """How many items match, and at most `most` of their rows from `at` on."""
        found: Iterable[int] = range(len(self.paths))
        if states:
            wanted = {STATES.index(state) for state in states if state in STATES}
            found = [one for one in found if self.state[one] in wanted]
        if lane:
            found = [one for one in found if self._lanes[one] == lane]
        if error is not None:
            found = [one for one in found if self._error[one] == error]
        if text:
            sought = text.lower()
            found = [one for one in found if sought in self.paths[one].lower()]
        places = list(found)
        key = self._key(sort)
        if key is not None:
            places.sort(key=key, reverse=down)
        elif down:
            places.reverse()
        return len(places), [self.row(one) for one in places[at : at + most]]

    def row(self, at: int) -> dict[str, object]:
        """One item as a row, in JSON's own types."""
        path = self.paths[at]
        return {
            "path": path,
            "key": unescape(path.rpartition("/")[2]),
            "state": STATES[self.state[at]],
            "lane": self._lanes[at],
            "began": round(self._began[at], 4),
            "waited": round(self._waited[at], 4),
            "took": round(self._took[at], 4),
            "attempts": self._attempts[at],
            "usd": self._usd[at],
            "tokens": self._tokens[at],
            "error": self._error[at],
        }

    def _key(self, sort: str) -> Callable[[int], Any] | None:
        columns: dict[str, Sequence[object]] = {
            "key": self.paths,
            "state": self.state,
            "lane": self._lanes,
            "began": self._began,
            "waited": self._waited,
            "took": self._took,
            "attempts": self._attempts,
            "usd": self._usd,
            "tokens": self._tokens,
        }
        return columns[sort].__getitem__ if sort in columns else None


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
