"""Rows of a study, read back from its run, its cost, and the cells that changed since then."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from abreast.core.events import ITEM_SETTLED
from abreast.core.item import escape, unescape
from abreast.core.outcome import NO_USAGE, Usage
from abreast.jobs.matrix.job import PROMPT_STEP, REPLY
from abreast.jobs.matrix.rows import FINAL_STATES, Row
from abreast.jobs.matrix.spec import CONTROL_LANE, Cell, CellChoice, Study
from abreast.run.call_totals import CALL_KINDS, call_totals
from abreast.run.outcome_record import usage_of
from abreast.store.codec import codec
from abreast.store.port import Recorded, RunRow, Store, each_event

_PAGE_CELLS = 200  # read at once


def rows_of(store: Store, run: RunRow, root: str | None = None) -> Iterator[Row]:
    """One row for each cell that has ended, ordered by key.

    `root` is the path of the study's scope; by default the run's.
    """
    ordered = sorted(_paths(store, run, root))
    for start in range(0, len(ordered), _PAGE_CELLS):
        page = ordered[start : start + _PAGE_CELLS]
        found = store.recorded(run.id, [*page, *(f"{path}/{REPLY}" for path in page)])
        for path in page:
            recorded = found[path]
            if recorded.data.get("state") in FINAL_STATES:
                yield _row(path, recorded, found.get(f"{path}/{REPLY}"))


def cells_of(store: Store, run: RunRow) -> Iterator[Row]:
    """The same rows without content: which cells have ended, read without their bodies."""
    return (Row.of({**_cell_names(path), "state": "done"}) for path in sorted(_paths(store, run)))


def _paths(store: Store, run: RunRow, root: str | None = None) -> set[str]:
    root = f"{root or escape(run.name)}/"
    return {
        event.path
        for event in each_event(store, run.id, {ITEM_SETTLED})
        if event.path.startswith(root)
        and event.path.count("/") == root.count("/") + 1  # the lane, the cell
        and event.data.get("state") in FINAL_STATES
    }


def _row(path: str, cell: Recorded, reply: Recorded | None) -> Row:
    facts = _cell_names(path)
    if reply is not None and reply.data.get("state") == "done":
        facts |= _body(reply)
    used = usage_of(cell.data if reply is None else reply.data)
    if cell.data.get("state") == "done":
        facts |= {**_body(cell), "state": "done"}
    else:
        error = codec.decode_error(cell.body or "{}")
        facts |= {**error.details, "state": "failed", "error": error.message}
        facts.setdefault("error_type", error.kind.rpartition(".")[2])
    facts |= {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "usd": used.usd,
        "estimated": used.estimate,
    }
    facts |= _judge_usage(cell, used, facts.get("judge"))
    if "steps" not in facts and facts.get("attempts"):
        facts["steps"] = [
            {
                "name": PROMPT_STEP,
                "prompt": facts.get("prompt", ""),
                "output": facts.get("output") or "",
                "input_tokens": used.input_tokens,
                "output_tokens": used.output_tokens,
                "usd": used.usd,
                "service_s": facts.get("service_s", 0.0),
            }
        ]
    return Row.of({name: facts[name] for name in Row.__dataclass_fields__ if name in facts})


def _judge_usage(cell: Recorded, used: Usage, judge: object) -> dict[str, Any]:
    """The usage of judges.

    Older runs don't record it; there it is the usage of the whole cell less that of its reply.
    """
    whole = usage_of(cell.data)
    if isinstance(judge, Mapping):
        spent = usage_of(judge)
    elif whole.requests <= used.requests:
        spent = NO_USAGE
    else:
        spent = whole - used
    return {
        "judge_input_tokens": spent.input_tokens,
        "judge_output_tokens": spent.output_tokens,
        "judge_usd": spent.usd,
    }


def _cell_names(path: str) -> dict[str, Any]:
    """The names of a cell, from its path alone.

    A cell that failed before its strategy began has recorded nothing else.
    """
    lane, key = (unescape(part) for part in path.split("/")[-2:])
    model, strategy, given, repeat = key.split("~")
    return {
        "cell": key,
        "lane": lane,
        "model": model,
        "strategy": strategy,
        "input": given,
        "repeat": int(repeat),
        "control": lane == CONTROL_LANE,
    }


def _body(recorded: Recorded) -> dict[str, Any]:
    found = codec.decode(recorded.body) if recorded.body else {}
    return dict(found) if isinstance(found, Mapping) else {}


def spent_of(store: Store, run: RunRow) -> dict[str, float]:
    """Requests, tokens and money of all calls so far, also of cells that were superseded since.

    A call that was cut off by a kill counts as what was reserved for it.
    """
    return call_totals(each_event(store, run.id, CALL_KINDS)).paid


@dataclass(slots=True)
class ChangedCells:
    """A study compared with its run: how many cells are recorded, and which run again, and why."""

    recorded: int = 0
    failed: int = 0
    missing: int = 0
    again: dict[str, list[str]] = field(default_factory=dict)
    """Reasons, and the cells that run again for each."""


def changes(store: Store, run: RunRow, study: Study, choice: CellChoice) -> ChangedCells:
    """Compare a study with what is recorded of it."""
    found, scored_by = ChangedCells(), study.scored_by
    for cell, recorded, reply in _recorded_cells(store, run, study, choice):
        if recorded is None or recorded.data.get("state") not in FINAL_STATES:
            found.missing += 1
        elif recorded.data.get("digest") == codec.digest(cell.value(scored_by)):
            found.recorded += 1
            found.failed += recorded.data.get("state") == "failed"
        else:
            found.again.setdefault(_reason(cell, recorded, reply), []).append(cell.key)
    return found


def answered(store: Store, run: RunRow, study: Study, choice: CellChoice) -> frozenset[str]:
    """The cells that can be scored without a model, as `lane/key`.

    Their reply, or their failure, is recorded; controls need none.
    """
    return frozenset(
        f"{cell.lane}/{cell.key}"
        for cell, _, reply in _recorded_cells(store, run, study, choice)
        if cell.lane == CONTROL_LANE
        or (
            reply is not None
            and reply.data.get("state") in FINAL_STATES
            and reply.data.get("digest") == codec.digest(cell.asks)  # not as it was before an edit
        )
    )


def _recorded_cells(
    store: Store, run: RunRow, study: Study, choice: CellChoice
) -> Iterator[tuple[Cell, Recorded | None, Recorded | None]]:
    """Each cell with the recorded outcomes of it and of its reply."""
    cells = (cell for lane in study.lanes() for cell in study.cells(lane, choice))
    while page := list(islice(cells, _PAGE_CELLS)):
        root = escape(run.name)
        paths = {f"{root}/{escape(cell.lane)}/{escape(cell.key)}": cell for cell in page}
        known = store.recorded(run.id, [*paths, *(f"{path}/{REPLY}" for path in paths)])
        for path, cell in paths.items():
            yield cell, known.get(path), known.get(f"{path}/{REPLY}")


def _reason(cell: Cell, recorded: Recorded, reply: Recorded | None) -> str:
    """Which part of a cell has changed, as a sentence."""
    before: object = None
    if reply is not None and reply.data.get("state") == "done":
        before = _body(reply).get("made_of")
    elif recorded.data.get("state") == "failed":
        before = codec.decode_error(recorded.body or "{}").details.get("made_of")
    then, now = str(before or "").split(), cell.made_of.split()
    if len(then) != len(now):
        return "it changed"
    named = (
        f"the parameters of {cell.model.label}",
        f"the strategy {cell.strategy.name}",
        f"the input {cell.input.id}",
    )
    changed = [part for part, old, new in zip(named, then, now, strict=True) if old != new]
    return f"{' and '.join(changed) or 'the scores'} changed" + (
        "" if changed else " (no call is made again)"
    )
