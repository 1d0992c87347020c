"""What a driver has noted and not committed yet: lines at the end of the file that holds its lock.

A commit costs a thread's turn and its way back, a line one system call; both survive the end of the
process. So places are given away as soon as outcomes are noted here, and commits can wait for
company. A line is `[epoch, spent, events]`.
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
from abreast.store.codec.codec import is_text, json_writer

_LONGEST: Final = (
    64 * 1024
)  # characters of bodies in one line: what is longer is better written once, by a commit
_MOST: Final = 4 << 20  # bytes; then commits have to catch up first
_WORTH_IT: Final = _MOST >> 2  # bytes: a shorter file is not emptied while it is driven
_WRITE: Final = json_writer()
_DAMAGED: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)  # as a power cut may leave it
_SHAPE: Final = (
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
    """The notes of one driver, in an open file that is its own. Any thread may use it."""

    def __init__(self, opened: int) -> None:
        """Begin with nothing noted: what was in the file must have been committed."""
        os.ftruncate(opened, 0)
        self._opened: int | None = opened
        self._owner = (
            os.getpid()
        )  # in a forked child, the file's number may be that of another file
        self._lock = threading.Lock()
        self._size = 0
        self._newest = 0

    def add(self, epoch: int, events: Sequence[Event], spent: Mapping[str, float]) -> bool:
        """Note events, all or none; False if they are better committed, or there is no room."""
        if sum(len(event[7]) for event in events if event[7]) > _LONGEST:
            return False
        try:
            line = f"{_WRITE((epoch, spent, events))}\n".encode()
        except (
            TypeError,
            ValueError,
        ):  # a NaN, a frozen mapping or a lone surrogate: a commit knows what to do
            return False
        with self._lock:
            if self._opened is None or self._size > _MOST or self._owner != os.getpid():
                return False
            try:
                whole = os.pwrite(self._opened, line, self._size) == len(line)
            except OSError:
                return False
            if whole:
                self._size += len(line)
                self._newest = events[-1].seq
        return whole  # half a line counts for nothing, and the next is written over it

    def committed(self, seq: int) -> None:
        """What was noted up to that event is in the database now."""
        with self._lock:
            if self._opened is not None and self._size > _WORTH_IT and self._newest <= seq:
                with suppress(
                    OSError
                ):  # it can stay as it is: what is committed is never taken twice
                    os.ftruncate(self._opened, 0)
                    self._size = 0

    def close(self) -> None:
        """Note nothing more; the file is its owner's to close."""
        with self._lock:
            self._opened = None


def left_in(path: Path, epoch: int, after: int) -> tuple[list[Event], Mapping[str, float]]:
    """The events that driver number `epoch` has noted after event `after`, without gaps, and what it had spent then."""
    events: list[Event] = []
    spent: Mapping[str, float] = {}
    for line in path.read_bytes().split(b"\n")[
        :-1
    ]:  # after the last end of a line there is half a line, or nothing
        try:
            noted_by, then, rows = json.loads(line)
            fresh = [_event(row) for row in rows if row[0] > after]
            for amount in then.values():
                _check(amount, float, int)
        except _DAMAGED:
            break
        if noted_by != epoch or not fresh:
            continue
        if [event.seq for event in fresh] != list(range(after + 1, after + 1 + len(fresh))):
            break
        events += fresh
        after, spent = fresh[-1].seq, then
    return events, spent


def _event(row: Sequence[Any]) -> Event:
    """An event as it was noted.

    ValueError or TypeError for anything that a commit would stumble over.
    """
    for value, kinds in zip(row, _SHAPE, strict=True):
        _check(value, *kinds)
    return Event(*row)


def _check(value: object, *kinds: type) -> None:
    if type(value) not in kinds or (isinstance(value, str) and not is_text(value)):
        raise TypeError(f"{value!r:.80} was never noted")
