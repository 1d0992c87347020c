"""Checksums of stored rows, chained within a run: pure, the same for every store.

How a store uses them:

- Each event has two more columns: `epoch`, the number of the driver that wrote it, and `sum`, a
  signed 64-bit integer: `event_sum(run_key(run_id), sum of the event before, columns)`. It covers
  the run's id and all columns of the event as they are stored; a long body that lies elsewhere is
  covered as if it were in the row. NULL in both: written before there were checksums.
- Each run has five more columns: `checked_from`, the `seq` of its first event with a checksum;
  `tail`, the sum of its newest event; `settled`, how many of its events are `item-settled`;
  `fixed`, which is `fixed_sum` of the columns that never change; and `sum`, which is `run_sum` of
  all others. The transaction that writes events, or takes or ends the run, writes these.
- A new run has `checked_from` 1 and `settled` 0; a run of before, once a driver takes it over,
  `last_seq + 1` and NULL. NULL in all five: no driver took it over since there are checksums.
- To check a run, give its row to `run_fault`, and its events, in order of `seq`, to a `ChainCheck`.
- A row that belongs to no run (a request, a cached reply) has one column `sum`: `row_sum`.

Texts are covered as UTF-8, so a store has to keep the text of `data` as it was written, not as
parsed JSON. Times are covered as 64-bit floats, everything else as what it is.

The upper half of an event's sum is the CRC-32 of the row, so that a single row can be checked
alone. The lower half is the CRC-32 of the upper half and of the lower half of the row before: a row
that was removed, swapped or replaced by one of another life of the run breaks the chain. There is
one chain per run, because a run has one driver at a time: groups of commits, and drivers that
follow each other, continue it from `tail`. Requests of other processes are not in the chain.

CRC-32 finds every error within 32 consecutive bits and lets one of 2**32 others pass. It is against
accidents: whoever can write the store can write checksums too.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from abreast.core.events import ITEM_SETTLED

Column: TypeAlias = str | int | float | None

_LOW: Final = (1 << 32) - 1
_SIGN: Final = 1 << 63  # moves the unsigned sum into the range of a signed 64-bit integer
_ABSENT: Final = -1  # the length of a text that is NULL; 0 is the empty text
# seq, epoch, mono, wall, and the lengths of kind, path, lane, data and body.
_pack_head: Final = struct.Struct("<qqddiiiii").pack
_pack_link: Final = struct.Struct("<II").pack
_pack_float: Final = struct.Struct("<d").pack
# What packing the columns of a damaged row may raise: SQLite returns whatever type it finds.
_DAMAGE_ERRORS: Final = (TypeError, ValueError, AttributeError, struct.error, OverflowError)


class StoredEvent(NamedTuple):
    """An event as its columns; `data` is JSON text, `sum` and `epoch` are None if unchecked."""

    seq: int
    kind: str
    path: str
    lane: str | None
    mono: float
    wall: float
    data: str | None
    body: str | None
    epoch: int | None = None
    sum: int | None = None


class StoredRun(NamedTuple):
    """A run as its columns; driver, tags, spent and manifest are JSON text, seed is decimal."""

    id: str
    name: str
    kind: str
    seed: str
    created: float
    tags: str
    manifest: str
    state: str
    epoch: int
    ended: float | None
    beat: float
    last_seq: int
    driver: str | None
    reason: str
    spent: str
    checked_from: int | None = None
    tail: int | None = None
    settled: int | None = None
    fixed: int | None = None
    sum: int | None = None


RUN_COLUMNS: Final = StoredRun._fields
FIXED_COLUMNS: Final = RUN_COLUMNS[:7]  # the columns that never change
CHANGING_COLUMNS: Final = RUN_COLUMNS[7:]  # the others; the last is the checksum of those before it


class Fault(NamedTuple):
    """What is wrong with a row, or with several rows in sequence.

    `first` and `last` are the `seq` of events; both are 0 for the run's own row.
    """

    first: int
    last: int
    what: str

    def __str__(self) -> str:
        if not self.first:
            return self.what
        rows = f"row {self.first}" if self.first == self.last else f"rows {self.first}-{self.last}"
        return f"{rows}: {self.what}"


def run_key(run_id: str) -> int:
    """Where the checksums of a run start: they differ from those of a run with another id."""
    return crc32(run_id.encode("utf-8", "surrogatepass"))


def event_sum(key: int, before: int | None, event: Sequence[Column]) -> int:
    """The checksum of an event after one with the checksum `before`.

    `key` is the `run_key` of its run, `before` is None if the event before has none or there is
    none. `event` has the columns of a `StoredEvent`; its own sum is not read.
    """
    seq, kind, path, lane, mono, wall, data, body, epoch = event[:9]
    head = _pack_head(
        seq,
        epoch,
        mono,
        wall,
        len(kind),  # type: ignore[arg-type]
        len(path),  # type: ignore[arg-type]
        _ABSENT if lane is None else len(lane),  # type: ignore[arg-type]
        _ABSENT if data is None else len(data),  # type: ignore[arg-type]
        _ABSENT if body is None else len(body),  # type: ignore[arg-type]
    )
    text = f"{kind}{path}{lane or ''}{data or ''}{body or ''}"
    own = crc32(text.encode("utf-8", "surrogatepass"), crc32(head, key))
    link = key if before is None else (before + _SIGN) & _LOW
    return (own << 32 | crc32(_pack_link(own, link))) - _SIGN


def row_sum(columns: Iterable[Column]) -> int:
    """The checksum of a row of texts, integers, floats and NULLs; it fits 32 bits unsigned."""
    total = 0
    for column in columns:
        if column is None:
            part = b"n"
        elif isinstance(column, str):
            text = column.encode("utf-8", "surrogatepass")
            part = b"t%d:%b" % (len(text), text)
        elif isinstance(column, float):
            part = b"f%b" % _pack_float(column)
        else:
            part = b"i%d;" % column
        total = crc32(part, total)
    return total


def fixed_sum(run: StoredRun) -> int:
    """The checksum of the columns of a run that never change; they can be long."""
    return row_sum(run[: len(FIXED_COLUMNS)])


def run_sum(run: StoredRun) -> int:
    """The checksum of a run's changing columns and of `fixed`."""
    return row_sum(run[len(FIXED_COLUMNS) : -1])


def is_whole(key: int, event: StoredEvent) -> bool:
    """Whether an event is as it was written, by itself; True if it has no checksum."""
    if event.sum is None:
        return event.epoch is None
    try:
        return (event_sum(key, None, event) + _SIGN) >> 32 == (event.sum + _SIGN) >> 32
    except _DAMAGE_ERRORS:
        return False


def state_fault(run: StoredRun) -> Fault | None:
    """What is wrong with the changing columns of a run's own row; the others are not read."""
    if run.sum is None:
        if run.checked_from is run.tail is run.settled is run.fixed is None:
            return None  # a run of before
        return Fault(0, 0, "the checksum of the run's own row is missing")
    return _changed_unless(lambda: run.sum == run_sum(run))


def run_fault(run: StoredRun) -> Fault | None:
    """What is wrong with a run's own row, if anything; None also if it has no checksum."""
    if run.sum is None:
        return state_fault(run)
    return state_fault(run) or _changed_unless(lambda: run.fixed == fixed_sum(run))


def _changed_unless(is_as_written: Callable[[], bool]) -> Fault | None:
    try:
        if is_as_written():
            return None
    except _DAMAGE_ERRORS:
        pass
    return Fault(0, 0, "the run's own row was changed")


class ChainCheck:
    """Follows the events of a run in order of `seq`, and collects what is wrong with them.

    It can be kept and continued when the run has more events; `seq` is how far it came.

        check = ChainCheck(run.id, run.checked_from)
        for event in events:
            check.add(event)
        check.finish(run.last_seq, run.tail, run.settled)
        print(check.faults)
    """

    __slots__ = ("_before", "_before_holds", "_from", "_key", "faults", "seq", "settled")

    def __init__(self, run_id: str, checked_from: int | None) -> None:
        self._key = run_key(run_id)
        self._from = checked_from
        self._before: int | None = None  # the sum of the event before
        self._before_holds = True  # whether that event is there and whole
        self.seq = 0
        self.settled = 0
        self.faults: list[Fault] = []

    def add(self, event: StoredEvent) -> bool:
        """Check the next event; False if it is not as it was written."""
        seq = event.seq
        if type(seq) is not int or seq <= self.seq:
            self._report(self.seq, "it is repeated, or out of order")
            return False
        if seq != self.seq + 1:
            self.faults.append(Fault(self.seq + 1, seq - 1, "missing"))
            self._before_holds = False
        self.seq = seq
        self.settled += event.kind == ITEM_SETTLED
        holds = self._holds(event)
        self._before, self._before_holds = event.sum, holds
        return holds

    def add_all(self, events: Iterable[StoredEvent]) -> None:
        """Check the next events; quicker than `add`, and plain tuples of the columns will do."""
        key = self._key
        for event in events:
            try:
                is_next = (
                    self._before_holds
                    and event[0] == self.seq + 1
                    and event[9] is not None
                    and event_sum(key, self._before, event) == event[9]
                )
            except _DAMAGE_ERRORS:
                is_next = False
            if is_next:
                self.seq += 1
                self._before = event[9]
                self.settled += event[1] == ITEM_SETTLED
            else:
                self.add(StoredEvent(*event))

    def finish(self, last_seq: int, tail: int | None, settled: int | None) -> None:
        """Compare the end with what the run's own row says of it."""
        if self.seq < last_seq:
            self.faults.append(Fault(self.seq + 1, last_seq, "missing"))
        elif self.seq > last_seq:
            self.faults.append(Fault(last_seq + 1, self.seq, "the run's row does not know of it"))
        elif self._before_holds and self._before != tail:
            self._report(self.seq, "it is not the last one that the run's row knows of")
        elif settled is not None and settled != self.settled and not self.faults:
            self._report(
                0, f"it recorded {settled} outcomes, and {self.settled} events are outcomes"
            )

    def _holds(self, event: StoredEvent) -> bool:
        if event.sum is None and event.epoch is None:
            if self._from is None or event.seq < self._from:
                return True
            return self._report(event.seq, "its checksum is missing")
        try:
            whole = event_sum(self._key, self._before, event)
            if whole == event.sum:
                return True
            is_same = (whole + _SIGN) >> 32 == ((event.sum or 0) + _SIGN) >> 32
        except _DAMAGE_ERRORS:
            is_same = False
        if not is_same:
            return self._report(event.seq, "changed")
        # The row is whole; if the one before it is not, that one is reported.
        return not self._before_holds or self._report(
            event.seq, "the row before it is not the one that it was written after"
        )

    def _report(self, seq: int, what: str) -> bool:
        self.faults.append(Fault(seq, seq, what))
        return False
