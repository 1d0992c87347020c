"""Conversions between the port's records and the columns of the PostgreSQL store."""

from collections.abc import Mapping, Sequence
from typing import Final

from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.checked_runs import DrivenRun
from abreast.store.checksums import (
    DRIVEN_COUNT,
    RUN_COLUMNS,
    StoredEvent,
    StoredRun,
    run_key,
    with_sums,
)
from abreast.store.port import Recorded
from abreast.store.rows import (
    MAX_INLINE,
    SEQ_BITS,
    SEQ_MASK,
    Row,
    event_columns,
    facts_of,
    facts_text,
)

MAX_INDEXED: Final = (
    1000  # bytes of a path that are in an index; the function path_key has the same
)
_AFTER_DIGEST: Final = b"\xff" * 33  # sorts after every digest
_AFTER_TEXT: Final = b"\xff"  # sorts after every text in UTF-8


class CommitColumns:
    """The columns of a commit; the checksums depend on the run's newest event."""

    def __init__(self, number: int, events: Sequence[Event], spent: Mapping[str, float]) -> None:
        self._events = events
        self._spent = facts_text(spent)
        self._rows, blobs = event_columns(number, events)
        states = [_state(event.kind, event.data) for event in events]
        self._columns = {"run": number, **_columns(self._rows, blobs), "states": states}

    def after(self, number: int, run: StoredRun) -> tuple[StoredRun, dict[str, object]]:
        """The run after the commit, and the parameters of the statement that makes it so."""
        rows = with_sums(run_key(run.id), run.tail, run.epoch, self._events, self._rows)
        sums = [row[-1] for row in rows]
        tail = int(sums[-1] or 0) if sums else run.tail
        advanced = DrivenRun(number, run).after(self._events, self._spent, tail)
        progress = {name: getattr(advanced, name) for name in RUN_COLUMNS[DRIVEN_COUNT:]}
        columns = {**self._columns, **progress, "sums": sums}
        return advanced, {**columns, "epoch": run.epoch, "sum_before": run.sum}


def copied_columns(number: int, events: Sequence[StoredEvent]) -> dict[str, object]:
    """The parameters of the statement that adds events as they are stored elsewhere."""
    rows: list[Row] = []
    blobs: list[Row] = []
    base = number << SEQ_BITS
    for seq, kind, path, lane, mono, wall, data, body, _, _ in events:
        is_long = body is not None and len(body) > MAX_INLINE
        if is_long:
            blobs.append((base + seq, body))
        inline = None if is_long else body
        rows.append((base + seq, number, kind, path, lane, mono, wall, data, inline))
    return {
        "run": number,
        **_columns(rows, blobs),
        "epochs": [event.epoch for event in events],
        "sums": [event.sum for event in events],
        "states": [_state(event.kind, facts_of(event.data)) for event in events],
    }


def stored_event(row: Row) -> StoredEvent:
    """An event as it is stored, from its columns; the first is its id, or its seq."""
    number, kind, path, lane, mono, wall, data, body, epoch, total = row
    texts = (path.decode(), _text(lane), mono, wall, data, _text(body))
    return StoredEvent(number & SEQ_MASK, kind, *texts, epoch, total)


def _columns(rows: Sequence[Row], blobs: Sequence[Row]) -> dict[str, object]:
    """A list for each column of events, and of their long bodies."""
    ids, _, kinds, paths, lanes, monos, walls, facts, bodies = (
        map(list, zip(*rows, strict=True)) if rows else ([] for _ in range(9))
    )
    return {
        "ids": ids,
        "kinds": kinds,
        "paths": [path.encode() for path in paths],
        "lanes": [_encoded(lane) for lane in lanes],
        "monos": [float(mono) for mono in monos],
        "walls": [float(wall) for wall in walls],
        "facts": facts,
        "bodies": [_encoded(body) for body in bodies],
        "blob_ids": [blob_id for blob_id, _ in blobs],
        "blobs": [body.encode() for _, body in blobs],
    }


def beneath(prefix: str) -> dict[str, bytes | None]:
    """Bounds for the paths at and beneath `prefix`: for `a/b` also `a/b/c`, but not `a/bc`.

    With a slash at its end, only what is beneath. `low_key` and `high_key` bound what an index has
    of these paths; among the paths within these, there may be others.
    """
    if not prefix:
        return {
            "prefix": None,
            "low": b"",
            "high": _AFTER_TEXT,
            "low_key": b"",
            "high_key": _AFTER_TEXT,
        }
    stem, encoded = prefix.removesuffix("/").encode(), prefix.encode()
    high = stem + b"0"  # the character after "/"
    return {
        "prefix": encoded if stem == encoded else None,
        "low": stem + b"/",
        "high": high,
        "low_key": encoded[:MAX_INDEXED],
        "high_key": high if len(high) <= MAX_INDEXED else high[:MAX_INDEXED] + _AFTER_DIGEST,
    }


def event_of(stored: StoredEvent) -> Event:
    """An event as it was emitted."""
    seq, kind, path, lane, mono, wall, data, body, _, _ = stored
    return Event(seq, kind, path, mono, wall, lane, facts_of(data), body)


def recorded_of(stored: StoredEvent) -> Recorded:
    """The outcome that an event has recorded."""
    return Recorded(stored.path, stored.seq, stored.lane, facts_of(stored.data), stored.body)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _text(encoded: bytes | None) -> str | None:
    return None if encoded is None else encoded.decode()


def _state(kind: str, facts: Mapping[str, object]) -> str | None:
    state = facts.get("state") if kind == ITEM_SETTLED else None
    return state if isinstance(state, str) else None
