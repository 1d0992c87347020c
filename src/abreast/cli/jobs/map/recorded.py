"""What a run has to show: its outcomes in item order, without those that ran past a stop or were cancelled."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from abreast.cli.terminal.outcome_text import Row, error_row, is_command, written
from abreast.core.errors import left_by
from abreast.core.events import MAP_STARTED, MAP_STOPPED
from abreast.core.item import unescape
from abreast.store.codec import codec
from abreast.store.port import Recorded, Store, each_outcome

_PAGE: Final = 500


@dataclass(slots=True)
class RecordedTally:
    """How many items of a run are in which state, results only."""

    done: int = 0
    failed: int = 0
    cancelled: int = 0
    speculative: int = 0
    service: float = 0.0


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """Where an outcome stands among all of its run: by map, then by item."""

    map_path: str
    index: int
    path: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Map:
    """How far a map counts: from which event on it was driven last, and at which item it stopped."""

    since: int
    stopped_at: int | None = None


def each_result(store: Store, run_id: str) -> Iterator[Recorded]:
    """The outcomes that are the run's result so far, in item order; of each only the newest."""
    places = sorted(place for place, kind in _judged(store, run_id) if kind in ("done", "failed"))
    for at in range(0, len(places), _PAGE):
        page = [place.path for place in places[at : at + _PAGE]]
        found = store.recorded(run_id, page)
        yield from (found[path] for path in page if path in found)


def tally(store: Store, run_id: str) -> RecordedTally:
    """Count them."""
    count = RecordedTally()
    for _, kind in _judged(store, run_id):
        setattr(count, kind, getattr(count, kind) + 1)
    return count


def row_of_recorded(recorded: Recorded) -> Row:
    """A recorded outcome in JSON's own types; nothing of the user's code is needed to read it."""
    data: dict[str, Any] = dict(recorded.data)
    service = data.get("service") or []
    map_path, _, key = recorded.path.rpartition("/")
    row: Row = {
        "path": recorded.path,
        "map": map_path,
        "key": unescape(key),
        "index": data["index"],
        "state": data["state"],
    }
    if recorded.lane is not None:
        row["lane"] = recorded.lane
    if data["state"] == "done":
        value: Any = codec.decode_plain(recorded.body or "null")
        row |= written(value) if is_command(value) else {"value": value}
    elif data["state"] == "failed":
        error = codec.decode_error(recorded.body or "{}")
        row |= written(left_by(error))
        row["error"] = error_row(error)
    else:
        row["reason"] = data.get("reason", "")
    row |= {"attempts": data.get("attempts", 1), "seconds": round(sum(service), 6)}
    row |= {
        name: round(float(data.get(name) or 0.0), 6) for name in ("queued", "waited", "backoff")
    }
    return row | {name: data[name] for name in _USAGE if name in data}


_USAGE: Final = ("requests", "input_tokens", "output_tokens", "usd", "estimate")


def _judged(store: Store, run_id: str) -> Iterator[tuple[_Place, str]]:
    """Every outcome's place with what it counts as: done, failed, cancelled, or speculative (it ran past a stop)."""
    maps = _maps(store, run_id)
    left_out = {
        recorded.path for recorded in each_outcome(store, run_id) if _ran_past(recorded, maps)
    }
    for recorded in each_outcome(store, run_id):
        place = _place(recorded)
        if recorded.data["state"] == "cancelled":
            yield place, "cancelled"
        else:
            yield (
                place,
                "speculative"
                if _is_beneath(recorded.path, left_out)
                else str(recorded.data["state"]),
            )


def _place(recorded: Recorded) -> _Place:
    index = recorded.data["index"]
    return _Place(
        recorded.path.rpartition("/")[0], index if isinstance(index, int) else 0, recorded.path
    )


def _maps(store: Store, run_id: str) -> dict[str, _Map]:
    """The newest driving of each map, and where it stopped if it did."""
    maps: dict[str, _Map] = {}
    after = 0
    while page := store.events(run_id, after=after, kinds={MAP_STARTED, MAP_STOPPED}):
        for event in page:
            if event.kind == MAP_STARTED:
                maps[event.path] = _Map(event.seq)
            elif event.path in maps and isinstance(at := event.data.get("at"), int):
                maps[event.path] = _Map(maps[event.path].since, at)
        after = page[-1].seq
    return maps


def _ran_past(recorded: Recorded, maps: dict[str, _Map]) -> bool:
    """Whether it is in no result: it lies past its map's stop, or it ended after a stop that still stands.

    What ended after an interrupt is marked speculative too, but a driver that went on since has
    taken it up.
    """
    driven = maps.get(recorded.path.rpartition("/")[0])
    if driven is None:
        return False
    if driven.stopped_at is not None:
        return _place(recorded).index > driven.stopped_at
    return bool(recorded.data.get("speculative")) and recorded.seq > driven.since


def _is_beneath(path: str, left_out: Collection[str]) -> bool:
    """Whether the path, or an item that it lies beneath, is left out."""
    while path and left_out:
        if path in left_out:
            return True
        path = path.rpartition("/")[0]
    return False
