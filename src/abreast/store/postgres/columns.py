"""Conversions between the port's records and the columns of the PostgreSQL store."""

from collections.abc import Mapping, Sequence
from typing import Final

from abreast.core.events import ITEM_SETTLED, Event
from abreast.store.checksums import StoredRun, event_sum, run_key, run_sum
from abreast.store.port import Recorded
from abreast.store.rows import Row, event_columns, event_row, facts_text, recorded_row

MAX_INDEXED: Final = (
    1000  # bytes of a path that are in an index; the function path_key has the same
)
_AFTER_DIGEST: Final = b"\xff" * 33  # sorts after every digest
_AFTER_TEXT: Final = b"\xff"  # sorts after every text in UTF-8


class CommitColumns:
    """The columns of a commit, without the checksums, which depend on the run's newest event."""

    def __init__(self, number: int, events: Sequence[Event], spent: Mapping[str, float]) -> None:
        self._events = events
        rows, blobs = event_columns(number, events)
        ids, _, kinds, paths, lanes, monos, walls, facts, bodies = (
            map(list, zip(*rows, strict=True)) if rows else ([] for _ in range(9))
        )
        self._spent = facts_text(spent)
        self._facts = facts
        self._columns: dict[str, object] = {
            "run": number,
            "ids": ids,
            "kinds": kinds,
            "paths": [path.encode() for path in paths],
            "lanes": [_encoded(lane) for lane in lanes],
            "monos": [float(mono) for mono in monos],
            "walls": [float(wall) for wall in walls],
            "facts": facts,
            "bodies": [_encoded(body) for body in bodies],
            "states": [_state(event) for event in events],
            "blob_ids": [blob_id for blob_id, _ in blobs],
            "blobs": [body.encode() for _, body in blobs],
        }

    def after(self, run: StoredRun) -> tuple[StoredRun, dict[str, object]]:
        """The run after the commit, and the parameters of the statement that makes it so."""
        sums = self._sums(run)
        newest = self._events[-1] if self._events else None
        settled = sum(event.kind == ITEM_SETTLED for event in self._events)
        advanced = run._replace(
            last_seq=max(run.last_seq, newest.seq) if newest else run.last_seq,
            beat=max(run.beat, float(newest.wall)) if newest else run.beat,
            spent=self._spent,
            tail=sums[-1] if sums else run.tail,
            settled=None if run.settled is None else run.settled + settled,
        )
        advanced = advanced._replace(sum=run_sum(advanced))
        columns = {
            **self._columns,
            "sums": sums,
            "epoch": run.epoch,
            "last_seq": advanced.last_seq,
            "beat": advanced.beat,
            "spent": advanced.spent,
            "tail": advanced.tail,
            "settled": advanced.settled,
            "sum": advanced.sum,
            "sum_before": run.sum,
        }
        return advanced, columns

    def _sums(self, run: StoredRun) -> list[int]:
        key, tail, sums = run_key(run.id), run.tail, []
        for (seq, kind, path, mono, wall, lane, _, body), facts in zip(
            self._events, self._facts, strict=True
        ):
            tail = event_sum(key, tail, (seq, kind, path, lane, mono, wall, facts, body, run.epoch))
            sums.append(tail)
        return sums


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
