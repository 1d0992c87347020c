"""Between the port's frozen records and what is kept of them: shared by the stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from abreast.core.errors import DriverReplaced, NoSuchRun, RunBusy, RunExists
from abreast.core.events import Event
from abreast.store.codec.codec import decode_facts, encode, json_writer
from abreast.store.port import Driver, Recorded, RunRow

SEQ_BITS: Final = 40
MAX_INLINE: Final = 64 * 1024
"""A longer body goes to a table of its own, so that passes over the journal stay light."""

_SEQ: Final = (1 << SEQ_BITS) - 1
_FAST: Final = json_writer(
    ascii_only=True
)  # ASCII, so that a lone surrogate in a fact is no trouble

Row = tuple[Any, ...]


def facts_text(facts: Mapping[str, object] | Sequence[str]) -> str:
    """A few plain facts as text.

    The odd NaN or frozen mapping takes the longer way, by the codec.
    """
    try:
        return _FAST(facts)
    except (TypeError, ValueError):
        return encode(
            dict(facts) if isinstance(facts, Mapping) else facts,
            "what is said of an event or a run",
        )


def facts_of(text: str | None) -> Any:  # noqa: ANN401 - as the columns they come from
    """The facts again, in containers of their own: nothing a reader does to them comes back to the store."""
    return decode_facts(text) if text else {}


def driver_text(driver: Driver) -> str:
    """A driver as it is kept in its run's row."""
    return facts_text(asdict(driver))


def run_row(row: Row) -> RunRow:
    """A run from its columns, in the order in which every statement lists them."""
    (
        run_id,
        name,
        kind,
        state,
        seed,
        epoch,
        created,
        ended,
        last_seq,
        driver,
        reason,
        tags,
        spent,
        manifest,
    ) = row
    return RunRow(
        run_id,
        name,
        kind,
        state,
        int(seed),
        epoch,
        created,
        ended,
        last_seq,
        Driver(**facts_of(driver)) if driver else None,
        reason,
        tuple(facts_of(tags)),
        facts_of(spent),
        facts_of(manifest),
    )


def event_columns(number: int, events: Sequence[Event]) -> tuple[list[Row], list[Row]]:
    """Events as the columns of run `number`, and the bodies that are too big to stand among them."""
    base = number << SEQ_BITS
    rows: list[Row] = []
    blobs: list[Row] = []
    for seq, kind, path, mono, wall, lane, data, body in events:
        kept = body
        if body is not None and len(body) > MAX_INLINE:
            blobs.append((base + seq, body))
            kept = None
        try:
            facts = _FAST(data) if data else None
        except (TypeError, ValueError):
            facts = facts_text(data)
        rows.append((base + seq, number, kind, path, lane, mono, wall, facts, kept))
    return rows, blobs


def recorded_row(row: Row) -> Recorded:
    """An outcome from its columns."""
    path, number, lane, data, body = row
    return Recorded(path, number & _SEQ, lane, facts_of(data), body)


def event_row(row: Row) -> Event:
    """An event from its columns."""
    number, kind, path, mono, wall, lane, data, body = row
    return Event(number & _SEQ, kind, path, mono, wall, lane, facts_of(data), body)


def beneath(prefix: str) -> dict[str, str | bytes | None]:
    """Bounds for `path`: the prefix itself and all beneath it, but not its namesakes (`a/b`, `a/b/c`, not `a/bc`).

    With a slash at its end, only what is beneath. An empty one leaves all in: a blob sorts after
    every text.
    """
    if not prefix:
        return {"prefix": None, "floor": "", "low": "", "high": b""}
    stem = prefix.removesuffix("/")
    exact = prefix if stem == prefix else None
    return {
        "prefix": exact,
        "floor": prefix,
        "low": f"{stem}/",
        "high": f"{stem}0",
    }  # "0" comes right after "/"


def is_beneath(path: str, prefix: str) -> bool:
    """The same, asked of one path."""
    return (
        not prefix
        or path == prefix
        or path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")
    )


def no_such_run(run_id: str, ids: Iterable[str]) -> NoSuchRun:
    """The error for an id that isn't there, with the closest that are; `ids` come newest first."""
    known = list(ids)
    if not known:
        return NoSuchRun(f"there is no run {run_id!r}: the store holds no runs yet")
    import difflib

    close = difflib.get_close_matches(run_id, known, n=3)
    hint = (
        f"did you mean {' or '.join(close)}?" if close else f"the newest are {', '.join(known[:3])}"
    )
    return NoSuchRun(f"there is no run {run_id!r}; {hint}")


def busy(row: RunRow) -> RunBusy:
    """The error for a run that another driver is on."""
    return RunBusy(f"run {row.id} is being driven by {row.driver or 'another process'}")


def already(run_id: str) -> RunExists:
    """The error for a new run whose id is taken."""
    return RunExists(
        f"there is a run {run_id!r} already; go on with it by `abreast resume`, or choose another id"
    )


def replaced(row: RunRow, epoch: int) -> DriverReplaced:
    """The error for a driver that is no longer its run's."""
    by = f" by {row.driver}" if row.driver else ""
    return DriverReplaced(
        f"run {row.id} was taken over{by} (driver number {row.epoch}); driver number {epoch} may write nothing more"
    )
