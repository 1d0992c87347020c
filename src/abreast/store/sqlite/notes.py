"""Write-ahead notes: events that a driver of an earlier version had not committed when killed.

They are lines in its lock file, `[epoch, spent, events]`. Nothing writes them any more: without
them, 2,000 commands `true` take 5 to 8% more CPU time, and durable maps and model calls the same.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Final

from abreast.core.events import Event
from abreast.store.codec.json_text import is_text

# What parsing a damaged line may raise; a power cut can leave one.
_DAMAGED_LINE_ERRORS: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_EVENT_FIELD_TYPES: Final[tuple[tuple[type, ...], ...]] = (
    (int,),
    (str,),
    (str,),
    (float, int),
    (float, int),
    (str, NoneType),
    (dict,),
    (str, NoneType),
)


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
        if any(event.seq != seq for seq, event in enumerate(new_events, after + 1)):
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
