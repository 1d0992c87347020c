"""Runs a workflow: a plain walk through its steps.

What is recorded of an earlier walk is not done again.

Only steps that do something are journaled, under their ids (`fan/0003/check` within item 3 of
`fan`); lists, branches and loops are walked anew when a run goes on, and find what is recorded
where they left it: there is one bookkeeping.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

from abreast.core.errors import BudgetSpent, OutcomeUnknown, RecordedError, TimedOut
from abreast.jobs.files.expressions import ExpressionFailed, ExpressionText
from abreast.jobs.workflow.dry_run import widest
from abreast.jobs.workflow.inputs import resolve_inputs
from abreast.jobs.workflow.load.analysis import outline
from abreast.jobs.workflow.secret_inputs import SealedInputs, Secrets
from abreast.jobs.workflow.spec import (
    LEAVES,
    CallStep,
    FanIn,
    FanOut,
    GateStep,
    If,
    Leaf,
    Loop,
    SlotStep,
    Step,
    Switch,
    Workflow,
)
from abreast.jobs.workflow.steps.actions import (
    configure,
    failed,
    perform,
    record_of,
    retry_of,
    runs,
    skipped,
    timeout_of,
)
from abreast.jobs.workflow.steps.fan_out import FanOuts
from abreast.jobs.workflow.steps.parallel import ParallelSteps
from abreast.jobs.workflow.steps.records import (
    Fate,
    Record,
    Records,
    StepFrame,
    StepHalted,
    StepPaused,
    status_of,
    tolerated,
)
from abreast.jobs.workflow.steps.values import resolve
from abreast.jobs.workflow.steps.width import RUN_WIDTH
from abreast.jobs.workflow.tools import StepContext, WorkflowTools
from abreast.limits.slots import Slots
from abreast.run.current import current_item
from abreast.run.run import Run
from abreast.store.codec import codec

EVERY_STEP: Final = "every:step"
"""The lane of all steps of a run that do something.

No step can name it, for its name has a colon.
"""
WORKFLOW_OUTLINED: Final = "workflow-outlined"
"""The event that keeps which steps there are, as the newest driver had them."""


@dataclass(frozen=True, slots=True)
class FlowResult:
    """How a workflow ended, and what became of each of its steps, by full id."""

    status: Fate
    error: str | None
    steps: Records
    outputs: dict[str, Any] = field(default_factory=dict)
    at: str | None = None
    """The full id of the step that halted it, or else of the last that began."""
    index: int = 0
    """The place of that step in the workflow's own list: of itself, or of the one that it is beneath."""

    @property
    def ok(self) -> bool:
        """Whether it went to its end."""
        return self.status == "completed"


class Flow:
    """One workflow on its way. It keeps nothing but what it was made with."""

    def __init__(
        self,
        workflow: Workflow,
        kit: WorkflowTools,
        verdicts: Mapping[str, str] | None = None,
        rehearse: Callable[[Leaf, dict[str, Any], StepContext], dict[str, Any]] | None = None,
        *,
        width: int | None = None,
    ) -> None:
        """`verdicts` answer gates by their full ids.

        To `rehearse`, that makes up what a step gives.

        At most `width` steps of the run do something at once; by default 64, or as many as its
        widest fan-out.
        """
        self.workflow = workflow
        self.kit = kit
        self.verdicts = verdicts or {}
        self.rehearse = rehearse
        self._width = width
        self._places: Slots | None = None
        self._fan_outs = FanOuts(self)

    async def run(self, run: Run, inputs: Mapping[str, Any]) -> FlowResult:
        """Walk through it within `run`.

        What a kind raises by a fault of its own is raised here too.
        """
        if (journal := run.setting.journal) is not None:
            journal.emit(
                WORKFLOW_OUTLINED,
                run.path,
                body=codec.encode(outline(self.workflow.steps), run.path),
            )
        self._places = Slots(self._width or max(RUN_WIDTH, widest(self.workflow.steps, inputs)))
        run.declare(EVERY_STEP, self._places)
        context = {"run_id": run.id or run.name, "workflow_dir": self.workflow.directory}
        result = await self._walk(
            StepFrame.outermost(run, SealedInputs(self.workflow.inputs, inputs), context)
        )
        if result.ok:  # though steps failed that may fail
            run.count_results("workflow", done=1, failed=0)
        return result

    def place_of(self, step: Leaf) -> str | None:
        """The lane of which a step holds a place while it works.

        A gate holds none: a person may take days.
        """
        return None if self._places is None or isinstance(step, GateStep) else EVERY_STEP

    def make_room(self, width: int) -> None:
        """A fan-out is so wide; only now can that be seen, if a step before it says how wide."""
        if self._places is not None and self._width is None and width > self._places.count:
            self._places.resize(width)

    async def _walk(self, frame: StepFrame) -> FlowResult:
        steps, records = self.workflow.steps, frame.records
        halted = await self.sequence(frame, steps)
        if halted is not None:
            ended = [frame.full(step.common.id) for step in steps]
            index = next(
                (
                    place
                    for place, name in enumerate(ended)
                    if name in records and records[name].halts
                ),
                0,
            )
            return FlowResult(halted.fate, halted.error, records, at=halted.halted_at, index=index)
        last = next(reversed(records), None)
        try:
            outputs = {
                name: resolve(value, frame.names) for name, value in self.workflow.outputs.items()
            }
        except ExpressionFailed as error:
            return FlowResult("failed", f"outputs: {error}", records, index=len(steps) - 1)
        return FlowResult("completed", None, records, outputs, at=last, index=len(steps) - 1)

    # --- lists of steps -------------------------------------------------------------------------------------------

    async def sequence(self, frame: StepFrame, steps: Sequence[Step]) -> Record | None:
        """One after the other, or as they need each other.

        The record of the one that halts, if one does.
        """
        if any(step.common.needs is not None for step in steps):
            return await self._as_needed(frame, steps)
        for step in steps:
            record = await self.step(frame, step)
            frame.note(step, record)
            if record.halts:
                return record
        return None

    async def _as_needed(self, frame: StepFrame, steps: Sequence[Step]) -> Record | None:
        """Side by side; what becomes of them is read in the order of one worker, as if they had run in it."""
        side = ParallelSteps(frame, steps)
        async with asyncio.TaskGroup() as group:
            for place, step in enumerate(side.steps):
                side.tasks.append(group.create_task(self._needing(side, place, step)))
        return side.gathered()

    async def _needing(self, side: ParallelSteps, place: int, step: Step) -> None:
        try:
            frame = await side.ready(place)
            record = await self.step(frame, step)
            frame.note(step, record)
            side.ended(place, record)
        except Exception as error:  # noqa: BLE001 - raised again in its turn
            side.broke(place, error)

    async def step(self, frame: StepFrame, step: Step) -> Record:
        """What becomes of one step."""
        common = step.common
        try:
            if not runs(step, frame):
                return skipped(common)
            given = resolve(common.input, frame.names)
            does = (
                self._leaf(frame, step)
                if isinstance(step, LEAVES)
                else self._composite(frame, step)
            )
            record = replace(await does, input=given)
        except ExpressionFailed as error:
            record = failed(common, str(error))
        if record.halts and record.halted_at is None:
            record = replace(record, halted_at=frame.full(common.id))
        return tolerated(record) if common.continue_on_error else record

    # --- steps that do something ----------------------------------------------------------------------------------

    async def _leaf(self, frame: StepFrame, step: Leaf) -> Record:
        common = step.common
        config = configure(step, frame, self.workflow)
        async with AsyncExitStack() as stack:
            scope = frame.run
            if common.budget is not None:
                scope = await stack.enter_async_context(
                    scope.child(common.id, budget=common.budget)
                )
            try:
                plain = await scope.step(
                    common.id,
                    self.performing(step, frame),
                    config,
                    lane=common.lane,
                    retry=retry_of(common),
                    timeout=timeout_of(step),
                    effect=common.effect,
                    on_change="rerun",
                    hold=self.place_of(step),
                )
            except BudgetSpent as error:
                if scope.budget is None or error.budget is not scope.budget or scope is frame.run:
                    raise
                return failed(common, str(error))
            except (StepHalted, StepPaused, TimedOut, RecordedError, OutcomeUnknown) as error:
                return record_of(step, error)
        return Record.of(plain)

    def performing(
        self, step: Leaf, frame: StepFrame
    ) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
        """The function that does a step with its config."""
        kit, rehearse, full, names = (
            self.kit,
            self.rehearse,
            frame.full(step.common.id),
            frame.names,
        )
        verdict = self.verdicts.get(full)
        sealed: SealedInputs = names["inputs"]
        secrets = Secrets(sealed.secrets.values())
        inputs = sealed.revealed if secrets else sealed

        async def do(config: dict[str, Any]) -> dict[str, Any]:
            item = current_item()
            attempt, seed = (item.attempt, item.seed) if item is not None else (1, 0)
            run_id = names["context"]["run_id"]
            context = StepContext(
                full, run_id, inputs, names["item"], attempt, seed, verdict, self.workflow.directory
            )
            if rehearse:
                return rehearse(step, config, context)
            if not secrets or isinstance(step, GateStep):  # what a gate asks is shown and recorded
                return await perform(kit, step, config, context)
            return await self._perform_secretly(step, frame.revealed(inputs), context, secrets)

        return do

    async def _perform_secretly(
        self, step: Leaf, frame: StepFrame, context: StepContext, secrets: Secrets
    ) -> dict[str, Any]:
        """Do a step whose expressions see the secrets; they are masked in all that comes of it."""
        try:
            config = configure(step, frame, self.workflow)
            found: dict[str, Any] = secrets.hide(await perform(self.kit, step, config, context))
        except ExpressionFailed as error:
            raise StepHalted(secrets.hide_record(failed(step.common, str(error)))) from None
        except StepHalted as error:
            raise StepHalted(secrets.hide_record(error.record), retryable=error.retryable) from None
        except Exception as error:
            hidden = secrets.hide_error(error)
            if hidden is error:
                raise
            raise hidden from None
        return found

    # --- steps made of steps --------------------------------------------------------------------------------------

    async def _composite(self, frame: StepFrame, step: Step) -> Record:
        common = step.common
        async with AsyncExitStack() as stack:
            if common.budget is not None:
                scope = await stack.enter_async_context(
                    frame.run.child(f"{common.id}:budget", budget=common.budget)
                )
                frame = frame.within(scope)
            limit = asyncio.timeout(None)
            try:
                async with limit:
                    if common.timeout is not None:
                        clock = frame.run.setting.clock
                        timer = clock.call_at(
                            clock.now() + common.timeout, lambda: limit.reschedule(0)
                        )
                        stack.callback(timer.cancel)
                    return await _COMPOSITES[type(step)](self, frame, step)
            except TimeoutError:
                if not limit.expired():  # somebody else's
                    raise
                return failed(common, f"it took longer than {common.timeout:g} seconds")
            except BudgetSpent as error:
                if common.budget is None or error.budget is not frame.run.budget:
                    raise
                return failed(common, str(error))

    async def _if(self, frame: StepFrame, step: If) -> Record:
        holds = _truth(step.condition, frame)
        return await self._under(
            frame, step, {"condition_result": holds}, step.then if holds else step.otherwise
        )

    async def _switch(self, frame: StepFrame, step: Switch) -> Record:
        value = resolve(step.expression, frame.names)
        text = "" if value is None else str(value).strip()
        cases = dict(step.cases)
        output = {
            "matched_case": text if text in cases else "__default__",
            "expression_value": value,
        }
        return await self._under(frame, step, output, cases.get(text, step.default))

    async def _under(
        self, frame: StepFrame, step: Step, output: dict[str, Any], steps: Sequence[Step]
    ) -> Record:
        frame.note(step, Record(step.common.type, "completed", output))
        return summed_up(step, output, await self.sequence(frame, steps))

    async def _loop(self, frame: StepFrame, step: Loop) -> Record:
        common, full = step.common, frame.full(step.common.id)
        holds = step.at_least_once or _truth(step.condition, frame)
        kind = "do-while" if step.at_least_once else "while"
        output: dict[str, Any] = {
            "condition_result": holds,
            "max_iterations": step.max_iterations,
            "loop_type": kind,
            "iterations": 0,
            "max_reached": False,
        }
        if step.at_least_once:
            output["condition"] = (
                step.condition.text
                if isinstance(step.condition, ExpressionText)
                else step.condition
            )
        frame.note(step, Record(common.type, "completed", output))
        halted: Record | None = None
        number = 0
        async with frame.run.child(common.id) as scope:
            while holds and halted is None and number < step.max_iterations:
                async with scope.child(f"{number:04}") as inner:
                    halted = await self.sequence(frame.of_round(inner, full, number), step.steps)
                number += 1
                holds = halted is None and _truth(step.condition, frame)
        return summed_up(step, {**output, "iterations": number, "max_reached": holds}, halted)

    async def _fan_in(self, frame: StepFrame, step: FanIn) -> Record:
        steps = frame.names["steps"]
        results = [steps.get(name, {}).get("output", {}) for name in step.wait_for]
        names = {**frame.names, "fan_in": {"results": results}}
        output = {name: resolve(value, names) for name, value in step.output.items()}
        return Record(step.common.type, "completed", {"results": results, **output})

    async def _call(self, frame: StepFrame, step: CallStep) -> Record:
        common, inner = step.common, step.workflow
        secret = {one.name for one in inner.inputs if one.secret}
        revealed = {**frame.names, "inputs": frame.names["inputs"].revealed}
        given = {
            name: resolve(value, revealed if name in secret else frame.names)
            for name, value in step.given.items()
        }
        output: dict[str, Any] = {"workflow": inner.id, "status": "failed"}
        try:
            inputs = resolve_inputs(inner.inputs, given, None)
        except ValueError as error:
            return failed(common, f"{step.file}: {error}", {**output, "error": str(error)})
        frame.note(step, Record(common.type, "completed", output))
        async with frame.run.child(common.id) as scope:
            sealed = SealedInputs(inner.inputs, inputs)
            context = {**frame.names["context"], "workflow_dir": inner.directory}
            nested = StepFrame.outermost(scope, sealed, context, f"{frame.full(common.id)}:")
            flow = Flow(inner, self.kit, self.verdicts, self.rehearse, width=self._width)
            flow._places = self._places
            found = await flow._walk(nested)
        frame.merge(found.steps)
        output = {"workflow": inner.id, "status": found.status, **found.outputs}
        if found.ok:
            return Record(common.type, "completed", output)
        output["error"] = found.error
        return Record(
            common.type,
            status_of(found.status),
            output,
            found.error,
            found.status,
            halted_at=found.at,
        )

    async def _slot(self, _frame: StepFrame, step: SlotStep) -> Record:
        return Record(step.common.type, "skipped", {"slot": step.name})

    async def _fan_out(self, frame: StepFrame, step: FanOut) -> Record:
        return await self._fan_outs.run(frame, step)


_COMPOSITES: Final[dict[type, Callable[[Flow, StepFrame, Any], Awaitable[Record]]]] = {
    If: Flow._if,
    Switch: Flow._switch,
    Loop: Flow._loop,
    FanIn: Flow._fan_in,
    CallStep: Flow._call,  # noqa: SLF001
    FanOut: Flow._fan_out,
    SlotStep: Flow._slot,  # noqa: SLF001
}


def summed_up(step: Step, output: dict[str, Any], halted: Record | None) -> Record:
    """The record of a step made of steps: it fares as the one in it that halted."""
    common = step.common
    if halted is None:
        return Record(common.type, "completed", output)
    return Record(
        common.type,
        status_of(halted.fate),
        output,
        halted.error,
        halted.fate,
        halted_at=halted.halted_at,
    )


def _truth(condition: ExpressionText | bool, frame: StepFrame) -> bool:  # noqa: FBT001 - a file's value
    return condition if isinstance(condition, bool) else condition.truth(frame.names)
