"""The page's view of a matrix: models by strategies, with scores, costs and times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import StoreError
from abreast.core.events import ITEM_SETTLED, Event
from abreast.core.item import unescape
from abreast.jobs.matrix.design.cells import CurrentCells, Design
from abreast.jobs.matrix.rows import FINAL_STATES, Row
from abreast.jobs.matrix.spec import CONTROL_LANE
from abreast.store.port import RunRow
from abreast.views.job_view import (
    LiveText,
    manifest_of,
    many,
    mapping,
    number,
    short,
    value_in,
    whole,
)
from abreast.views.run_reader import error_of

if TYPE_CHECKING:
    from abreast.jobs.matrix.call_notes import LaneCount
    from abreast.jobs.matrix.job import MatrixTally

_STUDY_GIVEN: Final = "study-given"
_REPLY: Final = "reply"

_MAX_ARMS: Final = 400
_MAX_SCORES: Final = 8
_MAX_CELLS: Final = 1200  # listed, of all arms together
_MAX_INPUTS: Final = 500  # named, to look at the replies for one
_MAX_BESIDE: Final = 60  # cells for one input, side by side
_MAX_ARM_CELLS: Final = 12  # listed of one arm, the worst first
_TEXT_CHARACTERS: Final = 120
_MAX_OF_UNIT: Final = 90  # seconds or minutes; from here on the next larger unit is used
_PRICES: Final = ("usd", "tokens", "seconds")


class _Cell(NamedTuple):
    path: str
    failed: bool
    scores: Mapping[str, float | None]
    usd: float | None
    tokens: int
    seconds: float | None
    error: str = ""


@dataclass(slots=True)
class _Reply:
    """The cost and time of a cell's reply, which ends before the cell does."""

    usd: float | None
    tokens: int
    seconds: float | None


@dataclass(slots=True)
class _Arm:
    model: str
    strategy: str
    control: bool
    cells: dict[tuple[str, int], _Cell] = field(default_factory=dict)  # by input and repeat
    shown: _Shown | None = None  # reset when a cell of the arm ends


@dataclass(frozen=True, slots=True)
class _Shown:
    """An arm as it is shown, and the number of its cells that are no longer in the file."""

    facts: dict[str, Any]
    left_out: Mapping[str, int]


class MatrixView:
    """The cells of a study that have ended so far."""

    KINDS: ClassVar = frozenset({ITEM_SETTLED, _STUDY_GIVEN})

    def __init__(self) -> None:
        self._arms: dict[tuple[str, str, bool], _Arm] = {}
        self._replies: dict[str, _Reply] = {}
        self._scores: dict[str, None] = {}  # in the order of the file
        self._shown_scores: list[str] = []
        self._design: Mapping[str, Any] | None = None
        self._order: Design | None = None  # the design that was shown last

    def add(self, event: Event) -> None:
        """Add the next event."""
        if event.kind == _STUDY_GIVEN:
            self._design = mapping(mapping(value_in(event)).get("design")) or self._design
            for arm in self._arms.values():
                arm.shown = None
            return
        parts = event.path.split("/")
        if len(parts) == 4 and parts[3] == _REPLY:  # noqa: PLR2004 - run, lane, cell, its reply
            self._replies[event.path.rpartition("/")[0]] = _reply(event)
        elif len(parts) == 3 and event.data.get("state") in FINAL_STATES:  # noqa: PLR2004 - run, lane, cell
            self._cell_ended(event, unescape(parts[1]), unescape(parts[2]).split("~"))

    def _cell_ended(self, event: Event, lane: str, names: list[str]) -> None:
        if len(names) != 4 or not names[3].isdecimal():  # noqa: PLR2004 - model, strategy, input, repeat
            return
        model, strategy, given, repeat = names
        failed = event.data.get("state") == "failed"
        facts = _failure(event) if failed else mapping(value_in(event))
        scores = {str(name): number(value) for name, value in mapping(facts.get("scores")).items()}
        self._scores.update(dict.fromkeys(scores))
        key = (model, strategy, lane == CONTROL_LANE)
        arm = self._arms.setdefault(key, _Arm(*key))
        # A cell that was scored again keeps its reply. A failed call has no reply; its cost is
        # recorded with the cell.
        cost = (
            self._replies.pop(event.path, None)
            or arm.cells.get((given, int(repeat)))
            or _reply(event)
        )
        error = short(facts.get("error"), _TEXT_CHARACTERS) if failed else ""
        arm.shown = None
        arm.cells[given, int(repeat)] = _Cell(
            event.path, failed, scores, cost.usd, cost.tokens, cost.seconds, error
        )

    # --- what is shown ----------------------------------------------------------------------------

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """Every arm that is still in the file, at most 400."""
        design = self._current_design(run)
        names = list(self._scores)[:_MAX_SCORES]
        if names != self._shown_scores:
            self._shown_scores = names
            for arm in self._arms.values():
                arm.shown = None
        current = CurrentCells(design)
        for arm in self._arms.values():
            if arm.shown is None:
                arm.shown = _show(arm, design, names)
            for lacking, count in arm.shown.left_out.items():
                current.left_out[lacking] = current.left_out.get(lacking, 0) + count
        held = [
            (arm, arm.shown.facts)
            for arm in self._arms.values()
            if arm.shown is not None and arm.shown.facts["n"]
        ]
        plain = [one for one in held if not one[0].control]
        arms = sorted(plain, key=lambda one: _place(design, one[0]))[:_MAX_ARMS]
        each = max(3, min(_MAX_ARM_CELLS, _MAX_CELLS // max(1, len(arms))))
        listed = [{**shown, "cells": shown["cells"][:each]} for _, shown in arms]
        return {
            "file": short(manifest_of(run, "matrix").get("file"), _TEXT_CHARACTERS),
            "state": state,
            "scores": names,
            "models": _ordered(design.models if design else [], (arm.model for arm, _ in arms)),
            "strategies": _ordered(
                design.strategies if design else [], (arm.strategy for arm, _ in arms)
            ),
            "inputs": len(design.inputs) if design else None,
            "input_names": self._input_names(design),
            "repeats": design.repeats if design else None,
            "arms": listed,
            "fronts": {
                name: {price: _front(listed, name, price) for price in _PRICES} for name in names
            },
            "controls": [
                {"name": arm.strategy, "n": shown["n"], "means": shown["means"]}
                for arm, shown in held
                if arm.control
            ],
            "left_out": current.said,
            "cut": f"shown: {_MAX_ARMS:,} of {many(len(plain), 'arm')}"
            if len(plain) > _MAX_ARMS
            else None,
        }

    def cells_of(self, given: str) -> list[dict[str, object]]:
        """The cells for one input, in the order of the arms in the file."""
        arms = sorted(self._arms.values(), key=lambda arm: _place(self._order, arm))
        return [
            {"path": cell.path, "model": arm.model, "strategy": arm.strategy, "repeat": repeat}
            for arm in arms
            if not arm.control
            for (name, repeat), cell in sorted(arm.cells.items())
            if name == given
        ][:_MAX_BESIDE]

    def _input_names(self, design: Design | None) -> list[str]:
        seen = {name for arm in self._arms.values() if not arm.control for name, _ in arm.cells}
        self._order = design
        return _ordered(design.inputs if design else [], sorted(seen))[:_MAX_INPUTS]

    def _current_design(self, run: RunRow) -> Design | None:
        facts = self._design or mapping(run.manifest.get("design"))
        try:
            return Design.read(facts)
        except TypeError:  # of another version
            return None


def _reply(event: Event) -> _Reply:
    data = event.data
    usd = number(data.get("usd")) if "usd" in data else None
    tokens = (whole(data.get("input_tokens")) or 0) + (whole(data.get("output_tokens")) or 0)
    done = event.data.get("state") == "done"
    return _Reply(usd, tokens, number(mapping(value_in(event)).get("service_s")) if done else None)


def _failure(event: Event) -> Mapping[str, Any]:
    try:
        error = error_of(event)
    except StoreError:
        return {"error": "a failure that can't be read"}
    return {**mapping(error.details), "error": error.message or error.kind}


def _place(design: Design | None, arm: _Arm) -> tuple[int, int, str, str]:
    """The position of an arm in the file; arms that are not in it come last, by name."""
    models, strategies = (design.models, design.strategies) if design else ([], [])
    return (
        models.index(arm.model) if arm.model in models else len(models),
        strategies.index(arm.strategy) if arm.strategy in strategies else len(strategies),
        arm.model,
        arm.strategy,
    )


def _ordered(named: Sequence[str], seen: Iterable[str]) -> list[str]:
    """The names that were seen: first those of the file in its order, then the others."""
    known = dict.fromkeys(seen)
    return [*(one for one in named if one in known), *(one for one in known if one not in named)]


def _show(arm: _Arm, design: Design | None, names: Sequence[str]) -> _Shown:
    current = CurrentCells(design)
    # Rows with the names only, to find out whether they are still in the file.
    names_of = (arm.strategy, "", arm.model, arm.strategy)
    cells = {
        key: cell
        for key, cell in arm.cells.items()
        if current.passes(Row(*names_of, *key, "done", arm.control))
    }
    return _Shown(_arm_facts(arm, cells, names), current.left_out)


def _arm_facts(
    arm: _Arm, cells: Mapping[tuple[str, int], _Cell], names: Sequence[str]
) -> dict[str, Any]:
    prices = [cell.usd for cell in cells.values() if cell.usd is not None]
    seconds = [
        cell.seconds for cell in cells.values() if cell.seconds is not None and not cell.failed
    ]
    failed = sum(cell.failed for cell in cells.values())
    first = names[0] if names else ""
    worst = nsmallest(
        _MAX_ARM_CELLS,
        cells.items(),
        key=lambda one: (not one[1].failed, one[1].scores.get(first) or 0.0, one[0]),
    )
    return {
        "model": arm.model,
        "strategy": arm.strategy,
        "n": len(cells),
        "failed": failed,
        "means": {name: _mean(cells, name) for name in names},
        "passes": {
            name: sum(cell.scores.get(name) == 1 for cell in cells.values()) for name in names
        },
        "usd": fmean(prices) if prices else None,
        "tokens": fmean([cell.tokens for cell in cells.values()] or [0]),
        "seconds": median(seconds) if seconds else None,
        "cells": [
            {
                "input": short(given, _TEXT_CHARACTERS),
                "repeat": repeat,
                "path": cell.path,
                "error": cell.error or None,
                "scores": {name: cell.scores.get(name) for name in names},
            }
            for (given, repeat), cell in worst
        ],
    }


def _mean(cells: Mapping[tuple[str, int], _Cell], name: str) -> float | None:
    """The mean over inputs, with the repeats of each input averaged first.

    A cell that failed or has no score counts as 0.
    """
    inputs: dict[str, list[float]] = {}
    for (given, _), cell in cells.items():
        inputs.setdefault(given, []).append(cell.scores.get(name) or 0.0)
    return fmean(map(fmean, inputs.values())) if inputs else None


def _front(arms: Sequence[Mapping[str, Any]], name: str, price: str) -> list[int]:
    """The arms on the Pareto front: no other is as good for less, or better for as much."""
    offers = [
        (arm[price], -arm["means"][name], at)
        for at, arm in enumerate(arms)
        if arm[price] is not None and arm["means"][name] is not None
    ]
    found: list[int] = []
    best = 1.0
    known = None
    for cost, worse, at in sorted(offers):
        if known is None or worse < best or (worse, cost) == (best, known):
            best, known = worse, cost
            found.append(at)
    return found


class MatrixLive(LiveText):
    """The live line of a study: cells, lanes, 429s, cost so far and in all, and the time left."""

    def __init__(self, cells: Mapping[str, int], widths: Mapping[str, int]) -> None:
        self._cells, self._widths = cells, widths
        self._started_at = SYSTEM_CLOCK.now()

    def watch(self, tally: MatrixTally, lanes: Mapping[str, LaneCount]) -> None:
        """Take the counts that the study keeps, before its first cell."""
        self._tally, self._lanes = tally, lanes

    def add(self, _lane: str, _outcome: object) -> bool:
        """A cell has ended; the study has counted it."""
        return True

    def parts(self, elapsed: float | None = None) -> Iterator[tuple[str, str]]:
        """The parts of the line; `elapsed` replaces the seconds since the start."""
        tally, lanes = self._tally, self._lanes
        rejections = sum(lane.throttled for lane in lanes.values())
        yield f"{tally.done + tally.failed}/{sum(self._cells.values())} cells", ""
        yield f"{tally.failed} failed" if tally.failed else "", ""
        for name, lane in lanes.items():
            yield f"{name} {lane.now}/{self._widths.get(name, lane.now)}", ""
        yield f"{rejections} x 429" if rejections else "", ""
        if elapsed is None:
            elapsed = SYSTEM_CLOCK.now() - self._started_at
        spent = whole = 0.0
        seconds_left: dict[str, float] = {}
        for name, counts in tally.lanes.items():
            ended = counts.done + counts.failed
            still_open = max(0, self._cells.get(name, 0) - ended)
            spent += counts.usd
            # The cost at the end if further cells cost the same on average.
            whole += counts.usd + (counts.usd / ended * still_open if ended else 0.0)
            if counts.fresh:  # lanes have different speeds, and recorded cells say nothing of them
                seconds_left[name] = elapsed / counts.fresh * still_open
        yield f"{spent:.4g} of about {whole:.3g} usd" if spent else "", ""
        if seconds_left:
            last = max(seconds_left, key=lambda name: seconds_left[name])
            yield f"{_duration_text(seconds_left[last])} left ({last})", ""


def _duration_text(seconds: float) -> str:
    if seconds < _MAX_OF_UNIT:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < _MAX_OF_UNIT else f"{minutes / 60:.1f} h"
