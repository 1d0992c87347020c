"""The content of each page as plain JSON, for programs and for the page's own scripts."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.run_end import is_over
from abreast.jobs.plan.review.rejection import rejection_of
from abreast.jobs.plan.review.tree_manifest import merge_folder
from abreast.store.port import RunRow, Store
from abreast.store.totals import counts_of
from abreast.views.item import item_of
from abreast.views.items import SORTS
from abreast.views.job_view import listed
from abreast.views.progress import Tallies
from abreast.views.run_reader import shown_state
from abreast.web import lane_window
from abreast.web.compare import Comparisons, settings
from abreast.web.damaged_runs import DAMAGED, DamagedRuns, damaged_lines, list_runs
from abreast.web.replies import lines_of, replies_beside
from abreast.web.store_reader import JOB_VIEWS, READ_SECONDS, OpenRun, StoreReader

Query: TypeAlias = Mapping[str, str]
Answer: TypeAlias = dict[str, object]

ReviewOf: TypeAlias = Callable[[Store, RunRow, str], Answer]
"""The diff of a part of a plan; without a part, what a merge would be."""

_RUNS_PER_PAGE: Final = 100
_MAX_SEARCHED_RUNS: Final = 2000
_MAX_ITEMS_PER_PAGE: Final = 200
_RESUMABLE: Final = frozenset(
    {"crashed", "interrupted", "spent", "failed", "halted", "paused", "cancelled"}
)
_RETRIABLE: Final = frozenset({"done", "failed", "halted"})


class PageSource:
    """What pages are made from: the store, and what is read of it already."""

    def __init__(
        self,
        store: Store,
        prompt_of: Callable[[RunRow, str, object], str | None] = lambda *_: None,
        review_of: ReviewOf | None = None,
    ) -> None:
        self.store, self.prompt_of, self.review_of = store, prompt_of, review_of
        self.reader, self.tallies = StoreReader(store), Tallies(store)
        self.damaged = DamagedRuns()
        self.comparisons = Comparisons(store)


def runs(source: PageSource, query: Query) -> Answer:
    """The runs of the store, newest first.

    The query may have `state`, `kind`, `q` (words of its name, tags or reason) and `at` (the first
    row of the page).
    """
    state, kind, words, at = (
        query.get("state", ""),
        query.get("kind", ""),
        query.get("q", "").lower(),
        _whole(query, "at"),
    )
    rows, damage = list_runs(source.store, _MAX_SEARCHED_RUNS)
    kinds = sorted({row.kind for row in rows})
    states = {row.id: shown_state(source.store, row) for row in rows if row.state == "running"}
    states |= dict.fromkeys(source.damaged.events, DAMAGED)
    matching = [
        row
        for row in rows
        if (not kind or row.kind == kind)
        and (not words or words in f"{row.id} {' '.join(row.tags)} {row.reason}".lower())
    ]
    found = [row for row in matching if not state or states.get(row.id, row.state) == state]
    shown = found[at : at + _RUNS_PER_PAGE]
    source.damaged.count(source.tallies, shown)
    lines = [
        source.damaged.marked(_line(source, row, states.get(row.id, row.state))) for row in shown
    ]
    damaged = [] if kind else damaged_lines(damage, words)
    unreadable = damaged if state in ("", DAMAGED) else []
    return {
        "runs": lines if at else unreadable + lines,
        "count": len(found) + len(unreadable),
        "at": at,
        "kinds": kinds,
        "states": sorted(
            {states.get(row.id, row.state) for row in rows} | ({DAMAGED} if damage else set())
        ),
        "by_state": Counter(states.get(row.id, row.state) for row in matching)
        + Counter({DAMAGED: len(damaged)}),
        "page": _RUNS_PER_PAGE,
    }


def _line(source: PageSource, row: RunRow, state: str) -> Answer:
    tally = source.tallies.of(row)
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


def compare(source: PageSource, query: Query) -> Answer:
    """Two runs, `first` and `second`, side by side, and a page of their items by key.

    The query may also have `only` (`different` or `same`), `q` (words of keys) and `at`. `read` is
    the part of their journals that is read so far; call again until it is 1.
    """
    rows = [source.store.get(query.get(name, "")) for name in ("first", "second")]
    source.tallies.update(rows)
    return {
        **{
            name: _line(source, row, shown_state(source.store, row))
            for name, row in zip(("first", "second"), rows, strict=True)
        },
        "settings": settings(rows[0], rows[1]),
        **source.comparisons.page(
            rows[0],
            rows[1],
            only=query.get("only", ""),
            words=query.get("q", "").lower(),
            at=_whole(query, "at"),
        ),
    }


def head(source: PageSource, run_id: str, _: Query) -> Answer:
    """One run as a whole: state, times, counts, usage, and which actions fit."""
    run = source.reader.get(run_id)
    with run.lock:
        run.refresh()
        return head_of(run)


def head_of(run: OpenRun) -> Answer:
    """The same for an open run whose lock the caller holds."""
    row, view = run.row, run.view
    counts = {
        **view.items.counts,
        "waiting": sum(len(lane.waiting) for lane in view.lanes.values()),
    }
    usage, total = {**view.costs.total, "unpriced": view.costs.unpriced}, view.total
    if not run.caught_up and (known := counts_of(row)) is not None:
        # A long journal is still being read; the counts of its row are right at once.
        counts |= {state: int(known[state] or 0) for state in ("done", "failed", "cancelled")}
        total = None if known["total"] is None else int(known["total"])
        usage |= {"usd": known["usd"] or 0.0, "unpriced": int(known["unpriced"] or 0)}
    until = row.ended if run.over else SYSTEM_CLOCK.wall()
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.kind,
        "state": run.state,
        "reason": row.reason or view.reason,
        "created": row.created,
        "ended": row.ended,
        "took": None if until is None else max(0.0, until - row.created),
        "seed": str(row.seed),
        "tags": row.tags,
        "drivers": row.epoch,
        "version": run.version,
        "driver": str(row.driver) if row.driver and run.state == "running" else None,
        "now": round(run.now, 3),
        "read": round(run.progress, 3),
        "counts": counts,
        "total": total,
        "usage": usage,
        "trees": merge_folder(row) is not None,
        "models": view.costs.models,
        "batches": {**view.batches.plain(), "text": view.batches.text()} if view.batches else None,
        "width": view.width,
        "timing_dependent": sorted(view.timing_dependent),
        "manifest": row.manifest,
        "can": {
            "cancel": run.state == "running",
            # The run of a script is resumed by starting the script again.
            "resume": row.kind in JOB_VIEWS
            and run.state in _RESUMABLE
            and not is_over(row.state, row.reason),
            "retry": row.kind in JOB_VIEWS and run.state in _RETRIABLE and counts["failed"] > 0,
        },
    }


def lanes(source: PageSource, run_id: str, query: Query) -> Answer:
    """The lanes from `begin` to `end` (seconds of the run) for a width of `columns` pixels.

    Without `begin` and `end`, the whole run.
    """
    run = source.reader.get(run_id)
    with run.lock:
        run.refresh_if_stale()
        begin, end = _number(query, "begin", 0.0), _number(query, "end", run.now)
        return {"version": run.version, **run.window(begin, end, _whole(query, "columns", 1000))}


def spending(source: PageSource, run_id: str, _: Query) -> Answer:
    """Cost and tokens over time."""
    run = source.reader.get(run_id)
    with run.lock:
        run.refresh_if_stale()
        return {
            "version": run.version,
            "models": run.view.costs.models,
            **lane_window.spending(run.view, run.now),
        }


def errors(source: PageSource, run_id: str, _: Query) -> Answer:
    """The kinds of failure, the most frequent first."""
    run = source.reader.get(run_id)
    with run.lock:
        run.refresh_if_stale()
        kinds = [{"error": at, **asdict(kind)} for at, kind in enumerate(run.view.errors.kinds)]
    return {
        "version": run.version,
        "errors": sorted(kinds, key=lambda one: -(one["items"] + one["retried"])),
    }


def items(source: PageSource, run_id: str, query: Query) -> Answer:
    """A page of items, each with its value in a line.

    The query may have `sort`, `down`, `state` (several by commas), `lane`, `q` (words of a path, a
    value or a reply), `error`, `top=1` (no items beneath others), `at` and `most`. `searched` is
    the part of the journal that was searched for `q`; call again until it is 1.
    """
    run = source.reader.get(run_id)
    sort = query.get("sort", "order")
    at, most = _whole(query, "at"), min(_MAX_ITEMS_PER_PAGE, _whole(query, "most", 50))
    words = query.get("q", "").strip()
    said, searched = (
        run.searches.get(words).read(source.store, source.store.get(run_id), READ_SECONDS)
        if words
        else (frozenset[str](), 1.0)
    )
    with run.lock:
        run.refresh_if_stale()
        count, rows = run.view.items.page(
            sort=sort if sort in SORTS else "order",
            down=query.get("down") == "1",
            lane=query.get("lane", ""),
            states=[state for state in query.get("state", "").split(",") if state],
            text=words,
            said=said,
            top=query.get("top") == "1",
            error=_whole(query, "error") if query.get("error") else None,
            at=at,
            most=most,
        )
        names, steps = list(run.view.lanes), run.view.agents.by_path()
        nested = run.view.items.nested().count(1)
    lines = lines_of(source.store, run.row, [str(row["path"]) for row in rows])
    return {
        "version": run.version,
        "count": count,
        "at": at,
        "items": [
            {**row, "value": lines.get(str(row["path"])) or steps.get(str(row["path"]), "")}
            for row in rows
        ],
        "nested": nested,
        "lanes": names,
        "searched": round(searched, 3),
    }


def item(source: PageSource, run_id: str, query: Query) -> Answer:
    """One item, by its `path` or its number in the lanes (`place`).

    The answer has its prompt, reply, attempts, timing and traceback.
    """
    path = query.get("path", "")
    if not path and query.get("place"):
        run = source.reader.get(run_id)
        with run.lock:
            place = _whole(query, "place")
            path = run.view.items.paths[place] if place < len(run.view.items) else ""
    return item_of(source.store, source.store.get(run_id), path, source.prompt_of)


def job(source: PageSource, run_id: str, _: Query) -> Answer:
    """What a job of this kind shows beside its lanes; a run of no job is shown as a map.

    `read` is the part of the journal that is read so far; call again until it is 1.
    """
    shown = source.reader.get(run_id).job
    view, read = shown.view(source.store, run_id, READ_SECONDS)
    row = source.store.get(run_id)
    if (folder := merge_folder(row)) and shown_state(source.store, row) != "running":
        # Of plans, the view itself has that.
        merge = {"run": run_id, "directory": folder, "parts": "item"}
        view = {**view, "merge": {**merge, "rejected": _rejected(source.store, row)}}
    if row.kind == "plan":
        view = {**view, "rejected": _rejected(source.store, row)}
    if shown.kind == "matrix" and (names := listed(view.get("input_names"))):
        view = {**view, "beside": replies(source, run_id, {"input": str(names[0])})}
    return {"kind": shown.kind, "view": view, "read": round(read, 3)}


def _rejected(store: Store, row: RunRow) -> dict[str, float | str] | None:
    found = rejection_of(store, row)
    return None if found is None else found.plain()


def replies(source: PageSource, run_id: str, query: Query) -> Answer:
    """The replies of all arms of a study for one `input`, side by side."""
    given = query.get("input", "")
    cells = source.reader.get(run_id).job.cells_of(given)
    return {"input": given, "cells": replies_beside(source.store, run_id, cells)}


def review(source: PageSource, run_id: str, query: Query) -> Answer:
    """The diff of a `part` of a plan, or what a merge of all its parts would be.

    A run of another job whose items worked in worktrees is merged as a plan is.
    """
    row = source.store.get(run_id)
    if (row.kind != "plan" and merge_folder(row) is None) or source.review_of is None:
        return {"error": f"{run_id} can't be reviewed here"}
    return source.review_of(source.store, row, query.get("part", ""))


def _whole(query: Query, name: str, default: int = 0) -> int:
    text = query.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 12 else default  # noqa: PLR2004 - no number here is longer


def _number(query: Query, name: str, default: float) -> float:
    try:
        value = float(query.get(name, ""))
    except ValueError:
        return default
    return value if 0.0 <= value < 1e12 else default  # noqa: PLR2004 - neither nan nor too large


STATIC: Final = Path(__file__).parent / "static"


def plotly_path() -> Path | None:
    """The path of the script in plotly's package, or None if plotly is not installed."""
    spec = find_spec("plotly")
    return (
        None
        if spec is None or spec.origin is None
        else Path(spec.origin).parent / "package_data" / "plotly.min.js"
    )


def json_text(content: object, secrets: Collection[str] = ()) -> str:
    """Encode as JSON, with secrets replaced by `***`.

    The journal holds no secrets; this is a second safeguard.
    """
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for secret in secrets:
        # JSON escapes quotes in a secret, and does so twice in a text that is JSON itself.
        for form in {secret, once := _escaped(secret), _escaped(once)}:
            text = text.replace(form, "***")
    return text


def _escaped(text: str) -> str:
    """The text as it is written within a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
