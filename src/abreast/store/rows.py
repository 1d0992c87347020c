"""Conversions between the port's records and stored columns, for SQL."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from abreast.core.errors import DriverReplaced, NoSuchRun, RunBusy
from abreast.core.events import CALL_SETTLED, ITEM_READ, ITEMS_COMPLETE, MAP_STARTED, Event
from abreast.store.codec.codec import decode_facts, encode
from abreast.store.codec.json_text import json_writer
from abreast.store.port import Driver, Recorded, RunRow
from abreast.system.quick_json import equal_json

SEQ_BITS: Final = 40  # bits of an event's id that hold its seq; the run's number is above them
# In characters. A longer body goes to a table of its own, so that scans of events stay fast.
MAX_INLINE: Final = 64 * 1024

SEQ_MASK: Final = (1 << SEQ_BITS) - 1
_to_json: Final = json_writer(ascii_only=True)  # ASCII, which can express a lone surrogate

Row = tuple[Any, ...]

LIST_STATEMENTS: Final = {
    frozenset({ITEM_READ}): "list_inputs",
    frozenset({ITEM_READ, ITEMS_COMPLETE}): "list_inputs",
    frozenset({ITEMS_COMPLETE}): "list_inputs",
    frozenset({MAP_STARTED}): "list_maps",
    frozenset({CALL_SETTLED}): "list_calls",
}
"""The statements that list events of kinds which have an index of their own."""


def facts_text(facts: Mapping[str, object] | Sequence[str]) -> str:
    """Plain facts as JSON text; a NaN or a frozen mapping is encoded by the slower codec."""
    text = equal_json(facts)
    if text is not None:
        return text.decode()
    try:
        return _to_json(facts)
    except (TypeError, ValueError):
        return encode(
            dict(facts) if isinstance(facts, Mapping) else facts,
            "what is said of an event or a run",
        )


def facts_of(text: str | None) -> Any:  # noqa: ANN401 - JSON of several shapes
    """The facts in `text`, as new objects: a reader that changes them doesn't change the store."""
    return decode_facts(text) if text else {}


def run_row(row: Row) -> RunRow:
    """A run from its columns, in the order of every SQL statement."""
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
    """Events of run `number` as columns, and the bodies too long to be stored with them."""
    base = number << SEQ_BITS
    rows: list[Row] = []
    blobs: list[Row] = []
    for seq, kind, path, mono, wall, lane, data, body in events:
        inline = body
        if body is not None and len(body) > MAX_INLINE:
            blobs.append((base + seq, body))
            inline = None
        facts = facts_text(data) if data else None
        rows.append((base + seq, number, kind, path, lane, mono, wall, facts, inline))
    return rows, blobs


def recorded_row(row: Row) -> Recorded:
    """An outcome from its columns."""
    path, number, lane, data, body = row
    return Recorded(path, number & SEQ_MASK, lane, facts_of(data), body)


def event_row(row: Row) -> Event:
    """An event from its columns."""
    number, kind, path, mono, wall, lane, data, body = row
    return Event(number & SEQ_MASK, kind, path, mono, wall, lane, facts_of(data), body)


def beneath(prefix: str) -> dict[str, str | bytes | None]:
    """SQL bounds for the paths at and beneath `prefix`: for `a/b` also `a/b/c`, but not `a/bc`.

    With a slash at its end, only what is beneath. An empty prefix allows every path: in SQLite a
    blob sorts after every text.
    """
    if not prefix:
        return {"prefix": None, "floor": "", "low": "", "high": b""}
    stem = prefix.removesuffix("/")
    exact = prefix if stem == prefix else None
    # "0" is the character after "/".
    return {"prefix": exact, "floor": prefix, "low": f"{stem}/", "high": f"{stem}0"}


def no_such_run(run_id: str, ids: Iterable[str]) -> NoSuchRun:
    """The error for an unknown id, with the closest known ones; `ids` come newest first."""
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
    """The error for a run that has another driver."""
    return RunBusy(f"run {row.id} is being driven by {row.driver or 'another process'}")


def replaced(row: RunRow, epoch: int) -> DriverReplaced:
    """The error for a driver that is no longer its run's."""
    by = f" by {row.driver}" if row.driver else ""
    return DriverReplaced(
        f"run {row.id} was taken over{by} (driver number {row.epoch}); "
        f"driver number {epoch} may write nothing more"
    )


def damaged_ledger(name: str, store: str) -> str:
    """What to say of a ledger that can't be read."""
    return (
        f"{store}: what is held and spent of the shared lane {name} is damaged; "
        f"`abreast store lanes --forget {name}` begins anew"
    )
