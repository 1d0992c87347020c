"""Conversions between the port's records and the columns of the PostgreSQL store."""

from collections.abc import Mapping, Sequence
from typing import Final

from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.port import Recorded
from abreast.store.rows import Row, event_columns, event_row, facts_text, recorded_row

MAX_INDEXED: Final = (
    1000  # bytes of a path that are in an index; the function path_key has the same
)
_AFTER_DIGEST: Final = b"\xff" * 33  # sorts after every digest
_AFTER_TEXT: Final = b"\xff"  # sorts after every text in UTF-8


def commit_columns(
    number: int, events: Sequence[Event], spent: Mapping[str, float]
) -> dict[str, object]:
    """The parameters of a commit: of the run's row, and a list for each column of the events."""
    rows, blobs = event_columns(number, events)
    ids, _, kinds, paths, lanes, monos, walls, facts, bodies = (
        map(list, zip(*rows, strict=True)) if rows else ([] for _ in range(9))
    )
    return {
        "run": number,
        "last_seq": events[-1].seq if events else 0,
        "beat": events[-1].wall if events else 0.0,
        "spent": facts_text(spent),
        "ids": ids,
        "kinds": kinds,
        "paths": [path.encode() for path in paths],
        "lanes": [_encoded(lane) for lane in lanes],
        "monos": monos,
        "walls": walls,
        "facts": facts,
        "bodies": [_encoded(body) for body in bodies],
        "states": [_state(event) for event in events],
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


def event_of(row: Row) -> Event:
    """An event from its columns."""
    event_id, kind, path, mono, wall, lane, data, body = row
    return event_row((event_id, kind, path.decode(), mono, wall, _text(lane), data, _text(body)))


def recorded_of(row: Row) -> Recorded:
    """An outcome from its columns."""
    path, event_id, lane, data, body = row
    return recorded_row((path.decode(), event_id, _text(lane), data, _text(body)))


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _text(encoded: bytes | None) -> str | None:
    return None if encoded is None else encoded.decode()


def _state(event: Event) -> str | None:
    state = event.data.get("state") if event.kind == ITEM_SETTLED else None
    return state if isinstance(state, str) else None
