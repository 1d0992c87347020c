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

Texts are covered as UTF-8 with a separator between them, NULL as "None"; so a store has to keep the
text of `data` as it was written, not as parsed JSON. Times are covered as 64-bit floats.

The upper half of an event's sum is the CRC-32 of the row, so that a single row can be checked
alone. The lower half is made of the upper half and of the lower half of the row before: a row that
was removed, swapped or replaced by one of another life of the run breaks the chain. There is
one chain per run, because a run has one driver at a time: groups of commits, and drivers that
follow each other, continue it from `tail`. Requests of other processes are not in the chain.

CRC-32 finds every error within 32 consecutive bits and lets one of 2**32 others pass. It is against
accidents, not against an attacker, who could write checksums too.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from abreast.core.events import ITEM_SETTLED, Event

Column: TypeAlias = str | int | float | None
_Row: TypeAlias = tuple[Column, ...]

# beat, last_seq, spent, tail and settled of a run.
Progress: TypeAlias = tuple[float, int, str, int | None, int | None]

MAX_NAMED: Final = 5  # faults that a message names; `abreast store check --json` lists all

_LOW: Final = (1 << 32) - 1
_SIGN: Final = 1 << 63  # moves the unsigned sum into the range of a signed 64-bit integer
_pack_times: Final = struct.Struct("<qdd").pack  # seq, mono, wall
_pack_progress: Final = struct.Struct("<dqqq").pack  # beat, last_seq, tail, settled
_NONE: Final = -1  # `settled` if it is NULL
# Odd, so that a link is different for each own sum and for each link before it.
_MULTIPLIER: Final = 0x9E3779B1
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
    driver: str | None
    reason: str
    checked_from: int | None
    fixed: int | None
    beat: float
    last_seq: int
    spent: str
    tail: int | None
    settled: int | None
    sum: int | None = None


RUN_COLUMNS: Final = StoredRun._fields
FIXED_COUNT: Final = 7  # columns that never change
DRIVEN_COUNT: Final = 14  # those, and the columns that stay the same while a driver has the run


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


def named(faults: Sequence[Fault]) -> str:
    """The first faults as one text."""
    more = len(faults) - MAX_NAMED
    return "; ".join(map(str, faults[:MAX_NAMED])) + (f"; and {more} more" if more > 0 else "")


def run_key(run_id: str) -> int:
    """Where the checksums of a run start: they differ from those of a run with another id."""
    return crc32(run_id.encode("utf-8", "surrogatepass"))


def event_sum(key: int, before: int | None, event: StoredEvent) -> int:
    """The checksum of an event after one with the checksum `before`.

    `key` is the `run_key` of its run, `before` is None if the event before has none or there is
    none. The event's own `sum` is not read, and a plain tuple of its columns will do.
    """
    seq, kind, path, lane, mono, wall, data, body, epoch, _ = event
    text = f"{kind}\x1f{path}\x1f{lane}\x1f{data}\x1f{body}"
    own = crc32(_pack_times(seq, mono, wall) + text.encode(), crc32(b"%d" % (epoch or 0), key))
    link = key if before is None else before & _LOW
    return (own << 32 | (link * _MULTIPLIER + own) & _LOW) - _SIGN


def with_sums(
    key: int, before: int | None, epoch: int, events: Iterable[Event], rows: Iterable[_Row]
) -> list[_Row]:
    """The rows of new events in sequence, each with `epoch` and its checksum at its end.

    `rows` are those of `event_columns`: the eighth column is the text of the event's data. The
    checksums are those of `event_sum`, but quicker. `UnicodeEncodeError` for what is no UTF-8.
    """
    link = key if before is None else before & _LOW
    start = crc32(b"%d" % epoch, key)
    summed = []
    for (seq, kind, path, mono, wall, lane, _, body), row in zip(events, rows, strict=True):
        text = f"{kind}\x1f{path}\x1f{lane}\x1f{row[7]}\x1f{body}"
        own = crc32(_pack_times(seq, mono, wall) + text.encode(), start)
        link = (link * _MULTIPLIER + own) & _LOW
        summed.append((*row, epoch, (own << 32 | link) - _SIGN))
    return summed


def row_sum(columns: Iterable[Column], before: int = 0) -> int:
    """The checksum of a row of texts, integers, floats and NULLs; it fits 32 bits unsigned.

    `before` is the checksum of the columns before these.
    """
    total = before
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
    return row_sum(run[:FIXED_COUNT])


def run_sum(run: StoredRun) -> int:
    """The checksum of a run's changing columns and of `fixed`."""
    return progress_sum(driven_sum(run), run[DRIVEN_COUNT:-1])


def driven_sum(run: StoredRun) -> int:
    """The first part of `run_sum`, which stays the same while a driver has the run."""
    return row_sum(run[FIXED_COUNT:DRIVEN_COUNT])


def progress_sum(before: int, progress: Progress) -> int:
    """The second part of `run_sum`, of what each commit changes; `before` is the first part."""
    beat, last_seq, spent, tail, settled = progress
    numbers = _pack_progress(beat, last_seq, tail or 0, _NONE if settled is None else settled)
    return crc32(numbers + spent.encode(), before)


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
