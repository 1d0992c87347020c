"""Runs the cells of a study: one map per lane, so that a slow or hung provider holds up nobody else.

cell -> reply (asked, on disk) -> scores -> row
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from abreast.core.errors import AbreastError, BudgetSpent, CallFailed, NotRecorded, Paused
from abreast.core.item import Item
from abreast.core.outcome import NO_USAGE, Done, Failed, Outcome
from abreast.jobs.matrix.call_notes import NOTES, Notes
from abreast.jobs.matrix.earlier_seconds import earlier_seconds, recorded_done
from abreast.jobs.matrix.rows import SubResult
from abreast.jobs.matrix.scoring.scores import Judged, score
from abreast.jobs.matrix.spec import CONTROL_LANE, Cell, CellChoice, Study
from abreast.jobs.matrix.tools import Asked, MatrixTools
from abreast.models.port import SHORT_REPLY_TOKENS
from abreast.run.calls.model import Caller
from abreast.run.current import CurrentItem, current_item
from abreast.run.outcome_record import usage_facts
from abreast.run.run import Run

REPLY: Final = "reply"
"""The part of a cell's path under which what was paid for is kept."""
LONE: Final = "prompt"
"""The one step of a strategy that is a prompt."""
_AHEAD: Final = (
    2  # cells on their way for each place on a lane: while one is scored and written, another asks
)


class CellFailed(AbreastError):
    """A strategy or its provider failed; what it had asked and got until then is in `details`."""

    retryable = False

    def __init__(self, message: str, details: Mapping[str, object] | None = None) -> None:
        """Keep what is known of the cell."""
        super().__init__(message, *([dict(details)] if details else []))
        self.details = dict(details or {})

    def __str__(self) -> str:
        """The sentence alone."""
        return str(self.args[0])


@dataclass(slots=True)
class LaneTally:
    """How far a lane is."""

    cells: int = 0
    done: int = 0
    failed: int = 0
    fresh: int = 0
    """Of these, those that this driver has asked itself; the others were recorded."""
    usd: float = 0.0


@dataclass(slots=True)
class Unscored:
    """In how many cells a score could not be given, and why in one of them."""

    cells: int
    example: str
    why: str


@dataclass(slots=True)
class MatrixTally:
    """How a study went."""

    lanes: dict[str, LaneTally] = field(default_factory=dict)
    unscored: dict[str, Unscored] = field(default_factory=dict)
    """Scores that could not be given, by name."""

    @property
    def done(self) -> int:
        """Cells that have a reply."""
        return sum(lane.done for lane in self.lanes.values())

    @property
    def failed(self) -> int:
        """Cells that failed."""
        return sum(lane.failed for lane in self.lanes.values())


class Matrix:
    """One run of a study."""

    def __init__(
        self,
        study: Study,
        bench: MatrixTools,
        choice: CellChoice,
        *,
        width: int | Mapping[str, int],
        told: Callable[[str, Outcome[Any]], None] | None = None,
        only: Container[str] | None = None,
    ) -> None:
        """`width` is that of each lane, or of all; `told` hears of each cell that ends.

        `only` are the cells to run, as `lane/key`; by default all that were chosen.
        """
        self._study = study
        self._bench = bench
        self._choice = choice
        self._width = width
        self._told = told
        self._only = only
        self._scored_by = study.scored_by
        self._open: dict[str, Cell] = {}
        self._fresh: set[str] = set()
        self.tally = MatrixTally()

    async def run(self, run: Run) -> MatrixTally:
        """All cells; `BudgetSpent` when all that could run has ended, if a budget or a lane was spent."""
        spent: list[BudgetSpent] = []
        async with asyncio.TaskGroup() as group:
            for lane in self._study.lanes():
                self.tally.lanes[lane] = LaneTally()
                group.create_task(self._lane(run, lane, spent))
        if spent:
            raise spent[0]
        await self._conclude(run)
        return self.tally

    async def _conclude(self, run: Run) -> None:
        """Say whether it succeeded: by the cells that ask a model, those that an earlier driver recorded included."""
        lanes = [lane for name, lane in self.tally.lanes.items() if name != CONTROL_LANE]
        done, failed = sum(lane.done for lane in lanes), sum(lane.failed for lane in lanes)
        if failed and not done and run.resumed:  # perhaps only a part of the study was chosen
            done = await recorded_done(run, except_lane=CONTROL_LANE)
        run.count_results("cell", done=done, failed=failed)

    async def _lane(self, run: Run, lane: str, spent: list[BudgetSpent]) -> None:
        tally = self.tally.lanes[lane]
        width = self._width if isinstance(self._width, int) else self._width[lane]
        width = width if lane == CONTROL_LANE else width * _AHEAD + _AHEAD
        try:
            async with run.map(
                self._cell,
                self._items(lane, tally),
                width=width,
                name=lane,
                order="completion",
                on_change="rerun",
            ) as cells:
                async for outcome in cells:
                    self._count(lane, tally, outcome)
        except BudgetSpent as error:
            spent.append(error)

    def _items(self, lane: str, tally: LaneTally) -> Iterator[Any]:
        for cell in self._study.cells(lane, self._choice):
            name = f"{lane}/{cell.key}"
            if self._only is not None and name not in self._only:
                continue
            tally.cells += 1
            self._open[name] = cell
            yield Item(cell.key, cell.value(self._scored_by))

    def _count(self, lane: str, tally: LaneTally, outcome: Outcome[Any]) -> None:
        name = f"{lane}/{outcome.key}"
        self._open.pop(name, None)
        tally.fresh += name in self._fresh
        self._fresh.discard(name)
        tally.done += isinstance(outcome, Done)
        tally.failed += isinstance(outcome, Failed)
        tally.usd += outcome.usage.usd or 0.0
        if isinstance(outcome, Done):
            for score_name, why in outcome.value["score_errors"].items():
                self.tally.unscored.setdefault(score_name, Unscored(0, outcome.key, why)).cells += 1
        if self._told is not None:
            self._told(lane, outcome)

    # --- one cell -------------------------------------------------------------------------------------------------

    async def _cell(self, _value: list[str]) -> dict[str, Any]:
        work = _work()
        name = f"{work.drive.options.name}/{work.key}"
        cell = self._open[name]

        async def ask(_: object) -> dict[str, Any]:
            self._fresh.add(name)
            return await self._reply(cell)

        reply = await work.run.step(REPLY, ask, cell.asks, on_change="rerun")
        judging = _Judging(self._bench, self._study.models[0].name)
        scores, errors = await self._scores(cell, reply, judging)
        told = {"judge": usage_facts(judging.used)} if judging.used is not NO_USAGE else {}
        return {"scores": scores, "score_errors": errors, **told}

    async def _reply(self, cell: Cell) -> dict[str, Any]:
        """Ask by the cell's strategy; `CellFailed` with what is known of it if that fails."""
        work = _work()
        notes = Notes(self._bench.clock.now(), earlier=await earlier_seconds(work))
        NOTES.set(notes)
        facts: dict[str, Any] = {}
        try:
            await _STRATEGIES[cell.strategy.kind](self, cell, facts)
        except (BudgetSpent, Paused, NotRecorded, asyncio.CancelledError):
            raise
        except Exception as error:
            failure = {
                **_told_of(cell),
                **facts,
                **_wire(notes, work),
                "error_type": type(error).__name__,
            }
            raise CellFailed(str(error) or type(error).__name__, failure) from error
        return {**_told_of(cell), **facts, **_wire(notes, work)}

    async def _prompt(self, cell: Cell, facts: dict[str, Any]) -> None:
        strategy, names = cell.strategy, {"input": dict(cell.input.value)}
        if strategy.prompt is None:
            raise CellFailed("the strategy has no prompt")
        facts["prompt"] = prompt = _text(strategy.prompt.value(names))
        system = None if strategy.system is None else _text(strategy.system.value(names))
        asked = await self._asked(cell)
        reply = await asked.reply(prompt, step=LONE, system=system, schema=strategy.schema)
        facts |= {"output": reply.text, "value": reply.value}

    async def _python(self, cell: Cell, facts: dict[str, Any]) -> None:
        asked = await self._asked(cell)
        async with asked.held():
            value = await self._bench.call(cell.strategy.call or "", dict(cell.input.value), asked)
        facts |= {"output": _text(value), "value": None if isinstance(value, str) else value}

    async def _sample(self, cell: Cell, facts: dict[str, Any]) -> None:
        strategy = cell.strategy
        prompt = (
            ""
            if strategy.prompt is None
            else _text(strategy.prompt.value({"input": dict(cell.input.value)}))
        )
        facts["prompt"] = prompt
        words = {**strategy.facts, "prompt": prompt}
        for word in ("temperature", "max_tokens"):
            if words.get(word) is None and getattr(cell.model, word) is not None:
                words[word] = getattr(cell.model, word)
        caller = await self._bench.caller(cell.model.name)
        found = await self._bench.sample(_work().run, words, caller)
        _note(found)
        facts |= {"output": found["text"], "value": found.get("value")}

    async def _workflow(self, cell: Cell, facts: dict[str, Any]) -> None:
        caller = await self._bench.caller(cell.model.name)
        found = await self._bench.workflow(
            _work().run, cell.strategy.file or "", dict(cell.input.value), caller
        )
        _note(found)
        if not found["ok"]:
            raise CellFailed(str(found.get("error") or "the workflow failed"))
        facts |= {"output": _text(found["text"]), "value": found.get("value")}

    async def _control(self, cell: Cell, facts: dict[str, Any]) -> None:
        value = cell.input.value
        made = {"empty": "", "echo": value.get("text", value), "truth": cell.input.truth}[
            cell.strategy.name
        ]
        facts |= {
            "output": "" if made is None else _text(made),
            "value": None if isinstance(made, str) else made,
        }

    async def _asked(self, cell: Cell) -> Asked:
        model, strategy = cell.model, cell.strategy
        options = {
            "temperature": model.temperature
            if strategy.temperature is None
            else strategy.temperature,
            "max_tokens": model.max_tokens if strategy.max_tokens is None else strategy.max_tokens,
        }
        return Asked(await self._bench.caller(model.name), options, self._bench.clock)

    # --- scores ---------------------------------------------------------------------------------------------------

    async def _scores(
        self, cell: Cell, reply: Mapping[str, Any], judging: _Judging
    ) -> tuple[dict[str, float | None], dict[str, str]]:
        judged = Judged(str(reply.get("output") or ""), reply.get("value"), cell.input)
        scores: dict[str, float | None] = {}
        errors: dict[str, str] = {}
        for spec in self._study.scores:
            if cell.strategy.kind == "control" and spec.kind == "judge":
                continue  # a control asks nobody
            try:
                scores[spec.name] = await score(
                    spec, judged, ask=judging.ask, call=self._bench.call
                )
            except (BudgetSpent, Paused, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 - the scorer's own, never a failure of the model
                scores[spec.name] = None
                errors[spec.name] = f"{type(error).__name__}: {error}"
        return scores, errors


class _Judging:
    """Asks the judges of one cell, and adds up what they used."""

    def __init__(self, bench: MatrixTools, usual: str) -> None:
        """`usual` is the model that is asked where none is named."""
        self._bench = bench
        self._usual = usual
        self.used = NO_USAGE

    async def ask(self, model: str | None, question: str) -> str:
        """What a judge says."""
        caller: Caller = await self._bench.judge(model or self._usual)
        token = NOTES.set(None)
        try:
            reply = await caller.ask(question, temperature=0.0, max_tokens=SHORT_REPLY_TOKENS)
        except CallFailed as error:
            self.used += getattr(error, "usage", NO_USAGE)
            raise
        finally:
            NOTES.reset(token)
        self.used += reply.usage
        return reply.text


_STRATEGIES: Final[dict[str, Callable[[Matrix, Cell, dict[str, Any]], Any]]] = {
    "prompt": Matrix._prompt,
    "python": Matrix._python,
    "sample": Matrix._sample,  # noqa: SLF001
    "workflow": Matrix._workflow,
    "control": Matrix._control,  # noqa: SLF001
}


def _work() -> CurrentItem:
    work = current_item()
    if work is None:
        raise RuntimeError("a cell runs inside an item of a map")
    return work


def _note(found: Mapping[str, Any]) -> None:
    """Keep the sub-results of a strategy that is a job itself."""
    notes = NOTES.get()
    if notes is not None:
        notes.steps += found.get("steps", ())


def _told_of(cell: Cell) -> dict[str, Any]:
    """What its path doesn't say: the right answer, and what it was made of."""
    return {"truth": cell.input.truth, "made_of": cell.made_of}


def _wire(notes: Notes, work: CurrentItem) -> dict[str, Any]:
    """What happened on the wire.

    A lone prompt has no sub-results: they would say the same once more.

    Attempts are the requests of the calls that count, those that an earlier driver made included; a
    429 is none.
    """
    sent = 0 if work.usage is None else work.usage.requests
    found: dict[str, Any] = {
        **notes.times(),
        "attempts": sent or (1 if notes.attempts else 0),
        "in_flight": notes.attempts[-1].in_flight if notes.attempts else 0,
    }
    if [step.name for step in notes.steps] != [LONE]:
        found["steps"] = [_plain(step) for step in notes.steps]
    return found


def _plain(step: SubResult) -> dict[str, Any]:
    return {name: getattr(step, name) for name in SubResult.__dataclass_fields__}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def without(choice: CellChoice, barred: set[tuple[str, str]]) -> CellChoice:
    """The same, but for arms that can't run here."""
    return replace(choice, barred=choice.barred | barred)
