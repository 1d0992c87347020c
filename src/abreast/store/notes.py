"""Write-ahead notes: events of a driver that are not committed yet, as lines in its lock file.

A commit takes two thread switches, a line one system call; both survive a kill of the process. So
an item's place is free as soon as its outcome is noted here, and commits can be grouped. A line is
`[epoch, spent, events]`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, Final

from abreast.core.events import Event
from abreast.store.codec.json_text import is_text, json_writer

# Characters of bodies in one line. Longer bodies are written only once, by a commit.
MAX_LINE_BODIES: Final = 64 * 1024
MAX_FILE_BYTES: Final = 4 << 20  # a longer file takes no notes until commits have caught up
MIN_TRUNCATE_BYTES: Final = MAX_FILE_BYTES >> 2  # a shorter file is not emptied after a commit
_to_json: Final = json_writer()
# What parsing a damaged line may raise; a power cut can leave one.
_DAMAGED_LINE_ERRORS: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_EVENT_FIELD_TYPES: Final = (
    (int,),
    (str,),
    (str,),
    (float, int),
    (float, int),
    (str, NoneType),
    (dict,),
    (str, NoneType),
)


class WriteAheadNotes:
    """The notes of one driver, in an open file that only it writes. Any thread may use it."""

    def __init__(self, opened: int) -> None:
        """Empty the file: what was noted in it must have been committed."""
        os.ftruncate(opened, 0)
        self._opened: int | None = opened
        # In a forked child the file descriptor may belong to another file.
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._size = 0
        self._newest = 0

    def add(self, epoch: int, events: Sequence[Event], spent: Mapping[str, float]) -> bool:
        """Note events, all or none; False if they must be committed directly.

        That is so if they are too long, can't be written as plain JSON, or the file is full.
        """
        if sum(len(event[7]) for event in events if event[7]) > MAX_LINE_BODIES:
            return False
        try:
            line = f"{_to_json((epoch, spent, events))}\n".encode()
        except (TypeError, ValueError):  # a NaN, a frozen mapping or a lone surrogate
            return False
        with self._lock:
            is_full = self._size > MAX_FILE_BYTES
            if self._opened is None or is_full or self._owner != os.getpid():
                return False
            try:
                is_complete = os.pwrite(self._opened, line, self._size) == len(line)
            except OSError:
                return False
            if is_complete:
                self._size += len(line)
                self._newest = events[-1].seq
        return is_complete  # an incomplete line is ignored, and overwritten by the next

    def committed(self, seq: int) -> None:
        """Empty the file if all notes, up to event `seq`, are in the database now."""
        with self._lock:
            is_long = self._size > MIN_TRUNCATE_BYTES
            if self._opened is not None and is_long and self._newest <= seq:
                # If it can't be emptied it may stay: committed events are never committed twice.
                with suppress(OSError):
                    os.ftruncate(self._opened, 0)
                    self._size = 0

    def close(self) -> None:
        """Take no more notes; the file is closed by its owner."""
        with self._lock:
            self._opened = None


def read_notes(path: Path, epoch: int, after: int) -> tuple[list[Event], Mapping[str, float]]:
    """The events noted by driver number `epoch` after event `after`, and its spending then.

    It stops at the first gap and at the first damaged line.
    """
    events: list[Event] = []
    spent: Mapping[str, float] = {}
    # After the last newline there is an incomplete line, or nothing.
    for line in path.read_bytes().split(b"\n")[:-1]:
        try:
            noted_by, spent_then, rows = json.loads(line)
            new_events = [_event(row) for row in rows if row[0] > after]
            for amount in spent_then.values():
                _check_type(amount, float, int)
        except _DAMAGED_LINE_ERRORS:
            break
        if noted_by != epoch or not new_events:
            continue
        expected = range(after + 1, after + 1 + len(new_events))
        if [event.seq for event in new_events] != list(expected):
            break
        events += new_events
        after, spent = new_events[-1].seq, spent_then
    return events, spent


def _event(row: Sequence[Any]) -> Event:
    """The event in a row of a note; ValueError or TypeError if a commit could not write it."""
    for value, kinds in zip(row, _EVENT_FIELD_TYPES, strict=True):
        _check_type(value, *kinds)
    return Event(*row)


def _check_type(value: object, *kinds: type) -> None:
    if type(value) not in kinds or (isinstance(value, str) and not is_text(value)):
        raise TypeError(f"{value!r:.80} was never noted")
