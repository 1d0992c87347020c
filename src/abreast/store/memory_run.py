"""One run of the store in memory: the same columns as in SQLite, as text and tuples."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from abreast.core.errors import StoreError
from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.codec.json_text import is_text
from abreast.store.port import Recorded, RunRow
from abreast.store.rows import Row, facts_text, recorded_row, run_row


@dataclass(slots=True)
class MemoryRun:
    """One run: its columns, its events, and the newest outcome of each path."""

    columns: dict[str, Any]
    beat: float  # wall time of its newest event
    events: dict[int, Row] = field(default_factory=dict)  # by seq, in order of their arrival
    order: list[int] = field(default_factory=list)  # the same seqs, ascending
    settled: dict[str, int] = field(default_factory=dict)  # path -> seq of its newest outcome

    def add(self, rows: Sequence[Row]) -> None:
        """Append events."""
        rising = not self.order or not rows or rows[0][0] > self.order[-1]
        for row in rows:
            self.events[row[0]] = row
            self.order.append(row[0])
            if row[1] == ITEM_SETTLED:
                self.settled[row[2]] = max(row[0], self.settled.get(row[2], 0))
        if not rising:
            self.order.sort()

    def after(self, seq: int) -> Iterator[Row]:
        """The events after that one, in order."""
        return (self.events[each] for each in self.order[bisect_right(self.order, seq) :])


def row_of(kept: MemoryRun) -> RunRow:
    """A copy of the run's row."""
    return run_row(tuple(kept.columns.values()))


def outcome_of(row: Row) -> Recorded:
    """The outcome that an event records."""
    seq, _, path, _, _, lane, data, body = row
    return recorded_row((path, seq, lane, data, body))


def columns_of(event: Event) -> Row:
    """An event as it is stored."""
    check_text(event.kind, event.path, event.lane or "", event.body or "")
    data = facts_text(event.data) if event.data else None
    return event.seq, event.kind, event.path, event.mono, event.wall, event.lane, data, event.body


def check_text(*texts: str) -> None:
    """Refuse text that SQLite can't write either."""
    for text in texts:
        if not is_text(text):
            raise StoreError(f"memory: can't take a name with a lone surrogate in it: {text!r}")
