"""Reads a run's results: outcomes in item order, without cancelled ones and those past a stop."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from abreast.cli.terminal.outcome_text import Row, command_row, error_row, is_command
from abreast.core.errors import command_output
from abreast.core.events import MAP_STARTED, MAP_STOPPED
from abreast.core.item import unescape
from abreast.store.codec import codec
from abreast.store.port import Recorded, Store, each_event, each_outcome

_PATHS_PER_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class _MapState:
    """The event at which a map's newest driver started it, and the item at which it stopped."""

    since: int
    stopped_at: int | None = None


def each_result(
    store: Store, run_id: str, states: Collection[str] = ("done", "failed")
) -> Iterator[Recorded]:
    """The outcomes of the run's result so far, in item order; of each item only the newest."""
    places = [(path, index) for path, index, kind in _classified(store, run_id) if kind in states]
    places.sort(key=lambda place: (place[0].rpartition("/")[0], place[1]))
    for at in range(0, len(places), _PATHS_PER_PAGE):
        page = [path for path, _ in places[at : at + _PATHS_PER_PAGE]]
        found = store.recorded(run_id, page)
        yield from (found[path] for path in page if path in found)


def tally(store: Store, run_id: str) -> Counter[str]:
    """How many items of the run are done, failed, cancelled or speculative."""
    maps = _map_states(store, run_id)
    count: Counter[str] = Counter()
    for recorded in each_outcome(store, run_id):
        if _is_past_stop(recorded, maps):
            return Counter(kind for _, _, kind in _classified(store, run_id))
        count[str(recorded.data["state"])] += 1
    return count


def row_of_recorded(recorded: Recorded) -> Row:
    """A recorded outcome as JSON values; no code of the user is imported to read it."""
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
        row |= command_row(value) if is_command(value) else {"value": value}
    elif data["state"] == "failed":
        error = codec.decode_error(recorded.body or "{}")
        row |= command_row(command_output(error))
        row["error"] = error_row(error)
    else:
        row["reason"] = data.get("reason", "")
    row |= {"attempts": data.get("attempts", 1), "seconds": round(sum(service), 6)}
    row |= {
        name: round(float(data.get(name) or 0.0), 6) for name in ("queued", "waited", "backoff")
    }
    return row | {name: data[name] for name in _USAGE_FIELDS if name in data}


_USAGE_FIELDS: Final = ("requests", "input_tokens", "output_tokens", "usd", "estimate")


def _classified(store: Store, run_id: str) -> Iterator[tuple[str, int, str]]:
    """Every outcome's path, index and state: done, failed, cancelled, speculative (past a stop)."""
    maps = _map_states(store, run_id)
    left_out = {
        recorded.path for recorded in each_outcome(store, run_id) if _is_past_stop(recorded, maps)
    }
    for recorded in each_outcome(store, run_id):
        state = str(recorded.data["state"])
        if state != "cancelled" and _is_beneath(recorded.path, left_out):
            state = "speculative"
        yield recorded.path, _index_of(recorded), state


def _index_of(recorded: Recorded) -> int:
    index = recorded.data["index"]
    return index if isinstance(index, int) else 0


def _map_states(store: Store, run_id: str) -> dict[str, _MapState]:
    maps: dict[str, _MapState] = {}
    for event in each_event(store, run_id, {MAP_STARTED, MAP_STOPPED}):
        if event.kind == MAP_STARTED:
            maps[event.path] = _MapState(event.seq)
        elif event.path in maps and isinstance(at := event.data.get("at"), int):
            maps[event.path] = _MapState(maps[event.path].since, at)
    return maps


def _is_past_stop(recorded: Recorded, maps: dict[str, _MapState]) -> bool:
    """Whether an outcome is not part of the result, as it is past its map's stop.

    Without a stop, that is an outcome marked speculative by the newest driver. One that ended
    after an interrupt is marked speculative too, but a driver that resumed the map has used it.
    """
    state = maps.get(recorded.path.rpartition("/")[0])
    if state is None:
        return False
    if state.stopped_at is not None:
        return _index_of(recorded) > state.stopped_at
    return bool(recorded.data.get("speculative")) and recorded.seq > state.since


def _is_beneath(path: str, left_out: Collection[str]) -> bool:
    while path and left_out:
        if path in left_out:
            return True
        path = path.rpartition("/")[0]
    return False
