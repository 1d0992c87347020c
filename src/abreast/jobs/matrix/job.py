"""Runs the cells of a study, with one map per lane: a slow or hung provider delays no other lane.

The steps of a cell: its reply (from the model or the store), its scores, its row.
"""

import asyncio
import json
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from abreast.core.errors import AbreastError, BudgetSpent, CallFailed, NotRecorded, Paused
from abreast.core.item import Item
from abreast.core.outcome import NO_USAGE, Done, Failed, Outcome, Usage
from abreast.jobs.matrix.call_notes import NOTES, CellNotes, earlier_seconds, recorded_done
from abreast.jobs.matrix.scoring.scores import Judged, score
from abreast.jobs.matrix.spec import CONTROL_LANE, Cell, CellChoice, Study
from abreast.jobs.matrix.tools import MatrixTools, StrategyModel
from abreast.models.media import MediaFile
from abreast.models.port import SHORT_REPLY_TOKENS, THINKING_OPTIONS
from abreast.run.calls.model import Caller
from abreast.run.current import CurrentItem, current_item
from abreast.run.outcome_record import usage_facts
from abreast.run.run import Run

REPLY: Final = "reply"
"""The step of a cell under which its reply is recorded."""
PROMPT_STEP: Final = "prompt"
"""The name of the only step of a strategy that is a prompt."""
# Cells in work for each place on a lane: while one is scored and recorded, another calls its model.
_CELLS_PER_PLACE: Final = 2


class CellFailed(AbreastError):
    """A strategy or its provider failed; `details` has its prompts and replies until then."""

    retryable = False

    def __init__(self, message: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message, *([dict(details)] if details else []))
        self.details = dict(details or {})

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(slots=True)
class LaneTally:
    """The progress of a lane."""

    cells: int = 0
    done: int = 0
    failed: int = 0
    fresh: int = 0
    """Cells whose reply this driver got from a model; those of the others were recorded."""
    usd: float = 0.0


@dataclass(slots=True)
class Unscored:
    """In how many cells a score could not be given, and the reason in one of them."""

    cells: int
    example: str
    why: str


@dataclass(slots=True)
class MatrixTally:
    """The result of running a study."""

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
        """`width` is that of each lane, or of all; `told` is called for each cell that ends.

        `only` are the cells to run, as `lane/key`; by default all that were chosen.
        """
        self._study = study
        self._tools = bench
        self._choice = choice
        self._width = width
        self._on_outcome = told
        self._only = only
        self._scored_by = study.scored_by
        self._open: dict[str, Cell] = {}
        self._fresh: set[str] = set()
        self.tally = MatrixTally()

    async def run(self, run: Run) -> MatrixTally:
        """Run all cells.

        If a budget or a lane is spent, everything that can still run ends first; then it raises
        `BudgetSpent`.
        """
        spent: list[BudgetSpent] = []
        async with asyncio.TaskGroup() as group:
            for lane in self._study.lanes():
                self.tally.lanes[lane] = LaneTally()
                group.create_task(self._lane(run, lane, spent))
        if spent:
            raise spent[0]
        # The cells that call a model decide the run's result, also those of an earlier driver.
        lanes = [lane for name, lane in self.tally.lanes.items() if name != CONTROL_LANE]
        done, failed = sum(lane.done for lane in lanes), sum(lane.failed for lane in lanes)
        if failed and not done and run.resumed:  # perhaps only a part of the study was chosen
            done = await recorded_done(run, except_lane=CONTROL_LANE)
        run.count_results("cell", done=done, failed=failed)
        return self.tally

    async def _lane(self, run: Run, lane: str, spent: list[BudgetSpent]) -> None:
        tally = self.tally.lanes[lane]
        width = self._width if isinstance(self._width, int) else self._width[lane]
        if lane != CONTROL_LANE:
            width = (width + 1) * _CELLS_PER_PLACE
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
        if self._on_outcome is not None:
            self._on_outcome(lane, outcome)

    # --- one cell ---------------------------------------------------------------------------------

    async def _cell(self, _value: list[str]) -> dict[str, Any]:
        item = _current()
        name = f"{item.map_name}/{item.key}"
        cell = self._open[name]

        async def ask(_: object) -> dict[str, Any]:
            self._fresh.add(name)
            return await self._reply(cell)

        reply = await item.run.step(REPLY, ask, cell.asks, on_change="rerun")
        judges = _JudgeCaller(self._tools, self._study.models[0].name)
        scores, errors = await self._scores(cell, reply, judges)
        found = {"scores": scores, "score_errors": errors}
        return found if judges.used is NO_USAGE else {**found, "judge": usage_facts(judges.used)}

    async def _reply(self, cell: Cell) -> dict[str, Any]:
        """Get the cell's reply by its strategy; raises `CellFailed` with all facts on failure."""
        item = _current()
        notes = CellNotes(self._tools.clock.now(), earlier=await earlier_seconds(item))
        NOTES.set(notes)
        # What the cell's path does not have: its right answer, and its digests.
        facts: dict[str, Any] = {"truth": cell.input.truth, "made_of": cell.made_of}
        try:
            await _STRATEGIES[cell.strategy.kind](self, cell, facts)
        except (BudgetSpent, Paused, NotRecorded, asyncio.CancelledError):
            raise
        except Exception as error:
            facts |= {**_request_facts(notes, item), "error_type": type(error).__name__}
            raise CellFailed(str(error) or type(error).__name__, facts) from error
        return {**facts, **_request_facts(notes, item)}

    async def _prompt(self, cell: Cell, facts: dict[str, Any]) -> None:
        strategy, names = cell.strategy, {"input": dict(cell.input.value)}
        if strategy.prompt is None:
            raise CellFailed("the strategy has no prompt")
        facts["prompt"] = prompt = _text(strategy.prompt.value(names))
        system = None if strategy.system is None else _text(strategy.system.value(names))
        model = await self._strategy_model(cell)
        shared = len(strategy.prompt.beginning(names)) if self._study.warm else None
        reply = await model.reply(
            prompt,
            step=PROMPT_STEP,
            system=system,
            schema=strategy.schema,
            files=cell.files,
            shared_prefix=shared,
        )
        facts |= {"output": reply.text, "value": reply.value}

    async def _python(self, cell: Cell, facts: dict[str, Any]) -> None:
        model = await self._strategy_model(cell)
        images = {name: {"image": path} for name, path in cell.input.image_paths.items()}
        given = {**cell.input.value, **images}
        async with model.held():
            value = await self._tools.call(cell.strategy.call or "", given, model)
        facts |= {"output": _text(value), "value": None if isinstance(value, str) else value}

    async def _sample(self, cell: Cell, facts: dict[str, Any]) -> None:
        template = cell.strategy.prompt
        facts["prompt"] = (
            "" if template is None else _text(template.value({"input": dict(cell.input.value)}))
        )
        words = {**cell.strategy.facts, "prompt": facts["prompt"]}
        if cell.files:
            words["images"] = [file.path for file in cell.files]
        for word in ("temperature", "max_tokens", *THINKING_OPTIONS):
            if words.get(word) is None and getattr(cell.model, word) is not None:
                words[word] = getattr(cell.model, word)
        found = await self._tools.sample(
            _current().run, words, await self._tools.caller(cell.model.name)
        )
        _note_steps(found)
        facts |= {"output": found["text"], "value": found.get("value")}

    async def _workflow(self, cell: Cell, facts: dict[str, Any]) -> None:
        caller = await self._tools.caller(cell.model.name)
        given = {**cell.input.value, **cell.input.image_paths}
        found = await self._tools.workflow(_current().run, cell.strategy.file or "", given, caller)
        _note_steps(found)
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

    async def _strategy_model(self, cell: Cell) -> StrategyModel:
        model, strategy = cell.model, cell.strategy
        options = {}
        for word in ("temperature", "max_tokens", *THINKING_OPTIONS):
            own = getattr(strategy, word)
            options[word] = getattr(model, word) if own is None else own
        return StrategyModel(await self._tools.caller(model.name), options, self._tools.clock)

    # --- scores -----------------------------------------------------------------------------------

    async def _scores(
        self, cell: Cell, reply: Mapping[str, Any], judges: "_JudgeCaller"
    ) -> tuple[dict[str, float | None], dict[str, str]]:
        output = str(reply.get("output") or "")
        judged = Judged(output, reply.get("value"), cell.input, cell.files)
        scores: dict[str, float | None] = {}
        errors: dict[str, str] = {}
        for spec in self._study.scores:
            if cell.strategy.kind == "control" and spec.kind == "judge":
                continue  # a control calls no model
            try:
                scores[spec.name] = await score(spec, judged, ask=judges.ask, call=self._tools.call)
            except (BudgetSpent, Paused, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 - a scorer's error is not the model's
                scores[spec.name] = None
                errors[spec.name] = f"{type(error).__name__}: {error}"
        return scores, errors


@dataclass(slots=True)
class _JudgeCaller:
    tools: MatrixTools
    default: str  # the model that is called where none is named
    used: Usage = NO_USAGE

    async def ask(self, model: str | None, question: str, files: tuple[MediaFile, ...] = ()) -> str:
        """Return the text of a judge's reply."""
        caller: Caller = await self.tools.judge(model or self.default)
        token = NOTES.set(None)
        try:
            reply = await caller.ask(
                question, temperature=0.0, max_tokens=SHORT_REPLY_TOKENS, files=files
            )
        except CallFailed as error:
            self.used += error.usage or NO_USAGE
            raise
        finally:
            NOTES.reset(token)
        self.used += reply.usage
        return reply.text


_STRATEGIES: Final[dict[str, Callable[[Matrix, Cell, dict[str, Any]], Any]]] = {
    "prompt": Matrix._prompt,  # noqa: SLF001 - the table belongs to the class
    "python": Matrix._python,  # noqa: SLF001 - the same
    "sample": Matrix._sample,  # noqa: SLF001 - the same
    "workflow": Matrix._workflow,  # noqa: SLF001 - the same
    "control": Matrix._control,  # noqa: SLF001 - the same
}


def _current() -> CurrentItem:
    item = current_item()
    if item is None:
        raise RuntimeError("a cell runs inside an item of a map")
    return item


def _note_steps(found: Mapping[str, Any]) -> None:
    notes = NOTES.get()
    if notes is not None:
        notes.steps += found.get("steps", ())


def _request_facts(notes: CellNotes, item: CurrentItem) -> dict[str, Any]:
    """The facts of a cell's requests: times, attempts, requests in flight, and sub-results.

    A strategy that is one prompt has no sub-results, since they would repeat the cell's own facts.
    Attempts are the requests of the calls that count, with those of an earlier driver; a request
    that got a 429 is not an attempt.
    """
    sent = 0 if item.usage is None else item.usage.requests
    found: dict[str, Any] = {
        **notes.times(),
        "attempts": sent or (1 if notes.attempts else 0),
        "in_flight": notes.attempts[-1].in_flight if notes.attempts else 0,
    }
    if [step.name for step in notes.steps] != [PROMPT_STEP]:
        found["steps"] = list(map(asdict, notes.steps))
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def without(choice: CellChoice, barred: set[tuple[str, str]]) -> CellChoice:
    """The same choice without some arms, which can't run here."""
    return replace(choice, barred=choice.barred | barred)
