"""What each page says, as plain JSON: the twins of the pages, and what the pages themselves are drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, TypeAlias

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.run_end import is_over
from abreast.store.port import RunRow, Store
from abreast.views.attempts import STATES
from abreast.views.item import item_of
from abreast.views.items import SORTS
from abreast.views.progress import Tallies
from abreast.views.run_reader import RunReader
from abreast.web import lane_window as picture
from abreast.web.store_reader import GLANCE, OpenRun, StoreReader

Given: TypeAlias = Mapping[str, str]
Said: TypeAlias = dict[str, object]

_RUNS: Final = 100  # on one page of runs
_LOOKED: Final = 2000  # runs among which it is searched
_ITEMS: Final = 200  # on one page of items
_RESUMABLE: Final = frozenset(
    {"crashed", "interrupted", "spent", "failed", "halted", "paused", "cancelled"}
)
_RETRIED: Final = frozenset({"done", "failed", "halted"})
_DRIVEN: Final = frozenset({"map", "sample", "workflow", "matrix", "plan", "candidates"})
"""What `abreast resume` can go on with.

The run of a script goes on when the script is started again.
"""


@dataclass(frozen=True, slots=True)
class PageSource:
    """What pages are made from: the store, and what is folded of it already."""

    store: Store
    prompt_of: Callable[[RunRow, str, object], str | None] = lambda *_: None
    shelf: StoreReader = field(init=False)
    tallies: Tallies = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is folded yet."""
        object.__setattr__(self, "shelf", StoreReader(self.store))
        object.__setattr__(self, "tallies", Tallies(self.store))


def runs(desk: PageSource, given: Given) -> Said:
    """The runs of the store, newest first: `state`, `kind`, `q` (words of its name, tags or reason), `at` to page."""
    state, kind, words, at = (
        given.get("state", ""),
        given.get("kind", ""),
        given.get("q", "").lower(),
        _whole(given, "at"),
    )
    rows = desk.store.runs(limit=_LOOKED)
    kinds = sorted({row.kind for row in rows})
    states = {
        row.id: RunReader(desk.store, row.id).state(row) for row in rows if row.state == "running"
    }
    found = [
        row
        for row in rows
        if (not state or states.get(row.id, row.state) == state)
        and (not kind or row.kind == kind)
        and (not words or words in f"{row.id} {' '.join(row.tags)} {row.reason}".lower())
    ]
    shown = found[at : at + _RUNS]
    desk.tallies.look(shown)
    return {
        "runs": [_line(desk, row, states.get(row.id, row.state)) for row in shown],
        "count": len(found),
        "at": at,
        "kinds": kinds,
        "states": sorted({states.get(row.id, row.state) for row in rows}),
        "page": _RUNS,
    }


def _line(desk: PageSource, row: RunRow, state: str) -> Said:
    tally = desk.tallies.of(row)
    until = (
        row.ended if row.ended is not None else SYSTEM_CLOCK.wall() if state == "running" else None
    )
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.kind,
        "state": state,
        "reason": row.reason,
        "tags": row.tags,
        "created": row.created,
        "took": None if until is None else max(0.0, until - row.created),
        **tally,
    }


def head(desk: PageSource, run_id: str, _: Given) -> Said:
    """One run: what is known of it as a whole."""
    book = desk.shelf.book(run_id)
    with book.lock:
        book.look()
        return head_of(book)


def head_of(book: OpenRun) -> Said:
    """The same of a book whose lock is held."""
    row, fold = book.row, book.fold
    usage = {
        name: sum(total[name] for total in fold.models.values())
        for name in ("requests", "usd", "input", "output")
    }
    waiting = sum(len(lane.waiting) for lane in fold.lanes.values())
    counts = {**dict(zip(STATES, fold.items.counts, strict=True)), "waiting": waiting}
    until = row.ended if book.over else SYSTEM_CLOCK.wall()
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.kind,
        "state": book.state,
        "reason": row.reason or fold.reason,
        "created": row.created,
        "ended": row.ended,
        "took": None if until is None else max(0.0, until - row.created),
        "seed": str(row.seed),
        "tags": row.tags,
        "drivers": row.epoch,
        "version": book.version,
        "driver": str(row.driver) if row.driver and book.state == "running" else None,
        "now": round(book.now, 3),
        "read": round(book.progress, 3),
        "counts": counts,
        "total": fold.total,
        "usage": {**usage, "unpriced": fold.unpriced},
        "models": fold.models,
        "width": fold.width,
        "timing_dependent": sorted(fold.timing_dependent),
        "manifest": row.manifest,
        "can": {
            "cancel": book.state == "running",
            "resume": row.kind in _DRIVEN
            and book.state in _RESUMABLE
            and not is_over(row.state, row.reason),
            "retry": row.kind in _DRIVEN and book.state in _RETRIED and counts["failed"] > 0,
        },
    }


def lanes(desk: PageSource, run_id: str, given: Given) -> Said:
    """The lanes from `begin` to `end` (seconds of the run) in so many `columns`.

    All of them unless told otherwise.
    """
    book = desk.shelf.book(run_id)
    with book.lock:
        book.look_if_old()
        now = book.now
        begin, end = _number(given, "begin", 0.0), _number(given, "end", now)
        asked = (begin, end, _whole(given, "columns", 1000))
        seen = (
            book.windows.get(asked) if book.over else None
        )  # of a run that is over, once is enough
        if seen is None:
            seen = picture.window(book.fold, now, begin=begin, end=end, columns=asked[2])
            book.windows[asked] = seen
        return {"version": book.version, **seen}


def spending(desk: PageSource, run_id: str, _: Given) -> Said:
    """Cost and tokens over time."""
    book = desk.shelf.book(run_id)
    with book.lock:
        book.look_if_old()
        return {
            "version": book.version,
            "models": book.fold.models,
            **picture.spending(book.fold, book.now),
        }


def errors(desk: PageSource, run_id: str, _: Given) -> Said:
    """What went wrong, by kind, the most frequent first."""
    book = desk.shelf.book(run_id)
    with book.lock:
        book.look_if_old()
        kinds = [{"error": at, **asdict(kind)} for at, kind in enumerate(book.fold.errors.kinds)]
    return {
        "version": book.version,
        "errors": sorted(kinds, key=lambda one: -(one["items"] + one["retried"])),
    }


def items(desk: PageSource, run_id: str, given: Given) -> Said:
    """A page of items: `sort`, `down`, `state` (several by commas), `lane`, `q`, `error`, `at`, `most`."""
    book = desk.shelf.book(run_id)
    sort = given.get("sort", "order")
    at, most = _whole(given, "at"), min(_ITEMS, _whole(given, "most", 50))
    with book.lock:
        book.look_if_old()
        count, rows = book.fold.items.page(
            sort=sort if sort in SORTS else "order",
            down=given.get("down") == "1",
            lane=given.get("lane", ""),
            states=[state for state in given.get("state", "").split(",") if state],
            text=given.get("q", ""),
            error=_whole(given, "error") if given.get("error") else None,
            at=at,
            most=most,
        )
        names = list(book.fold.lanes)
    return {"version": book.version, "count": count, "at": at, "items": rows, "lanes": names}


def item(desk: PageSource, run_id: str, given: Given) -> Said:
    """One item, by its `path`, or by its place in the picture (`place`): prompt, reply, attempts, timing, traceback."""
    path = given.get("path", "")
    if not path and given.get("place"):
        book = desk.shelf.book(run_id)
        with book.lock:
            place = _whole(given, "place")
            path = book.fold.items.paths[place] if place < len(book.fold.items) else ""
    journal = RunReader(desk.store, run_id)
    return item_of(journal, journal.run(), path, desk.prompt_of)


def job(desk: PageSource, run_id: str, _: Given) -> Said:
    """What a job of this kind shows beside its lanes, as far as it is `read` (ask again for more); others as maps."""
    told = desk.shelf.book(run_id).job
    view, read = told.view(RunReader(desk.store, run_id), GLANCE)
    return {"kind": told.kind, "view": view, "read": round(read, 3)}


def _whole(given: Given, name: str, default: int = 0) -> int:
    text = given.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 12 else default  # noqa: PLR2004 - no number that we know is longer


def _number(given: Given, name: str, default: float) -> float:
    try:
        value = float(given.get(name, ""))
    except ValueError:
        return default
    return value if 0.0 <= value < 1e12 else default  # noqa: PLR2004 - neither nan nor beyond all time
