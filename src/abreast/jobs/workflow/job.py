"""Runs a workflow: one pass over its steps, in which recorded actions are not repeated.

Only actions are journaled, under their ids (`fan/0003/check` within item 3 of `fan`). A resumed run
passes over lists, branches and loops again and finds the recorded results at the same paths, so
there is no second record of how far it came.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from abreast.core.errors import BudgetSpent, OutcomeUnknown, RecordedError, TimedOut
from abreast.jobs.files.expressions import ExpressionFailed, ExpressionText
from abreast.jobs.workflow.dry_run import widest
from abreast.jobs.workflow.inputs import SealedInputs, Secrets, resolve_inputs
from abreast.jobs.workflow.load.analysis import outline
from abreast.jobs.workflow.spec import (
    ACTIONS,
    Action,
    CallStep,
    Command,
    FanIn,
    FanOut,
    GateStep,
    If,
    Loop,
    Prompt,
    Shell,
    SlotStep,
    Step,
    Switch,
    Workflow,
)
from abreast.jobs.workflow.steps.actions import (
    composite_record,
    configure,
    content_of,
    failed,
    holds,
    perform,
    record_of,
    retry_of,
    timeout_of,
    with_shared_prefix,
)
from abreast.jobs.workflow.steps.fan_out import run_fan_out
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
from abreast.jobs.workflow.steps.values import RUN_WIDTH, resolve
from abreast.jobs.workflow.tools import CannotDo, StepContext, WorkflowTools
from abreast.limits.slots import Slots
from abreast.run.current import current_item
from abreast.run.run import Run
from abreast.worktrees.results.item_trees import WORKTREES

EVERY_STEP: Final = "every:step"
"""The lane of all actions of a run.

No step can name it, because its name has a colon.
"""
WORKFLOW_OUTLINED: Final = "workflow-outlined"
"""The event that records the outline of the steps, as the newest driver has them."""


@dataclass(frozen=True, slots=True)
class FlowResult:
    """How a workflow ended, and the record of each of its steps; `abreast.workflow` returns it.

    result.ok, result.outputs, result.steps["fan:greet:2"].output
    """

    status: Fate
    """`completed`, `failed`, `paused` (at a gate) or `aborted`."""
    error: str | None
    """Why it failed; None if it did not."""
    steps: Records
    """The record of each step by its full id: `type`, `status`, `output`, `error`."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """The values of the file's `outputs`."""
    at: str | None = None
    """The full id of the step that halted it, or else of the last that began."""
    index: int = 0
    """The position in the workflow's own list of that step, or of the step that contains it."""

    @property
    def ok(self) -> bool:
        """Whether it completed."""
        return self.status == "completed"


class Flow:
    """Runs one workflow. All state of a run is in its frames, none of it here but the lane."""

    def __init__(
        self,
        workflow: Workflow,
        tools: WorkflowTools,
        verdicts: Mapping[str, str] | None = None,
        rehearse: Callable[[Action, dict[str, Any], StepContext], dict[str, Any]] | None = None,
        *,
        width: int | None = None,
        slots: Slots | None = None,
        warm: bool = False,
    ) -> None:
        """`verdicts` answer gates by their full ids.

        With `rehearse`, actions are not run; it returns their results instead.

        At most `width` actions of the run are in work at once; by default 64, or as many as its
        widest fan-out. `slots` are those of the workflow that calls this one. With `warm`, every
        prompt is sent as one with `warm: true`.
        """
        self.workflow = workflow
        self.tools = tools
        self.verdicts = verdicts or {}
        self.rehearse = rehearse
        self._width = width
        self._slots = slots
        self._is_warm = warm
        self._run_composite: dict[type, Callable[[StepFrame, Any], Awaitable[Record]]] = {
            If: self._if,
            Switch: self._switch,
            Loop: self._loop,
            FanIn: self._fan_in,
            CallStep: self._call,
            FanOut: partial(run_fan_out, self),
            SlotStep: self._slot,
        }

    async def run(self, run: Run, inputs: Mapping[str, Any]) -> FlowResult:
        """Run the workflow within `run`.

        A fault of a custom kind is raised here too.
        """
        run.note(WORKFLOW_OUTLINED, value=outline(self.workflow.steps))
        self._slots = Slots(self._width or max(RUN_WIDTH, widest(self.workflow.steps, inputs)))
        run.declare(EVERY_STEP, self._slots)
        context = {"run_id": run.id or run.name, "workflow_dir": self.workflow.directory}
        result = await self._run_steps(
            StepFrame.outermost(run, SealedInputs(self.workflow.inputs, inputs), context)
        )
        if result.ok:  # also where a step with continue_on_error failed
            run.count_results("workflow", done=1, failed=0)
        return result

    def lanes_of(self, step: Action, *, in_tree: bool) -> tuple[str, ...]:
        """Return the lanes on which an action holds a place while it works.

        A gate holds none: the user may take days to answer.
        """
        if isinstance(step, GateStep):
            return ()
        is_process = isinstance(step, (Shell, Prompt, Command))
        trees = (WORKTREES,) if in_tree and is_process and self.rehearse is None else ()
        return (*(() if self._slots is None else (EVERY_STEP,)), *trees)

    def make_room(self, width: int) -> None:
        """Widen the lane for a fan-out whose width is known only now, from an earlier step."""
        if self._slots is not None and self._width is None and width > self._slots.count:
            self._slots.resize(width)

    async def _run_steps(self, frame: StepFrame) -> FlowResult:
        steps, records = self.workflow.steps, frame.records
        halted = await self.sequence(frame, steps)
        if halted is not None:
            ended = [records.get(frame.full(step.common.id)) for step in steps]
            index = next((at for at, one in enumerate(ended) if one and one.halts), 0)
            return FlowResult(halted.fate, halted.error, records, at=halted.halted_at, index=index)
        try:
            outputs = {
                name: resolve(value, frame.names) for name, value in self.workflow.outputs.items()
            }
        except ExpressionFailed as error:
            return FlowResult("failed", f"outputs: {error}", records, index=len(steps) - 1)
        last = next(reversed(records), None)
        return FlowResult("completed", None, records, outputs, at=last, index=len(steps) - 1)

    # --- lists of steps --------------------------------------------------------------------------

    async def sequence(self, frame: StepFrame, steps: Sequence[Step]) -> Record | None:
        """Run steps one after the other, or side by side if one of them has `needs`.

        Their records are then read in the order of a single worker.
        Returns the record of the step that halts, if one does.
        """
        if any(step.common.needs is not None for step in steps):
            parallel = ParallelSteps(frame, steps)
            async with asyncio.TaskGroup() as group:
                parallel.tasks = [
                    group.create_task(self._run_when_ready(parallel, place, step))
                    for place, step in enumerate(parallel.steps)
                ]
            return parallel.collect()
        for step in steps:
            record = await self.step(frame, step)
            frame.note(step, record)
            if record.halts:
                return record
        return None

    async def _run_when_ready(self, parallel: ParallelSteps, place: int, step: Step) -> None:
        try:
            frame = await parallel.wait_ready(place)
            record = await self.step(frame, step)
            frame.note(step, record)
            parallel.set_ended(place, record)
        except Exception as error:  # noqa: BLE001 - raised again by `collect`, in its turn
            parallel.set_error(place, error)

    async def step(self, frame: StepFrame, step: Step) -> Record:
        """Run one step, unless its `if` says no, and return its record."""
        common = step.common
        try:
            if not holds(common.when, frame):
                return Record(common.type, "skipped", {})
            given = resolve(common.input, frame.names)
            work = (
                self._action(frame, step)
                if isinstance(step, ACTIONS)
                else self._composite(frame, step)
            )
            record = replace(await work, input=given)
        except ExpressionFailed as error:
            record = failed(common, str(error))
        if record.halts and record.halted_at is None:
            record = replace(record, halted_at=frame.full(common.id))
        return tolerated(record) if common.continue_on_error else record

    # --- actions ---------------------------------------------------------------------------------

    async def _action(self, frame: StepFrame, step: Action) -> Record:
        common = step.common
        config = configure(step, frame, self.workflow)
        try:
            content = {} if self.rehearse else content_of(self.tools, step, config)
        except CannotDo as error:
            return failed(common, str(error), {"exit_code": 1, "dispatched": False})
        async with AsyncExitStack() as stack:
            scope = frame.run
            if common.budget is not None:
                scope = await stack.enter_async_context(
                    scope.child(common.id, budget=common.budget)
                )
            try:
                plain = await scope.step(
                    common.id,
                    self.performing(step, frame, config if content else None),
                    {**config, **content},
                    lane=common.lane,
                    retry=retry_of(common),
                    timeout=timeout_of(step),
                    effect=common.effect,
                    on_change="rerun",
                    hold=self.lanes_of(step, in_tree="worktree" in config),
                )
            except BudgetSpent as error:
                if scope.budget is None or error.budget is not scope.budget or scope is frame.run:
                    raise
                return failed(common, str(error))
            except (StepHalted, StepPaused, TimedOut, RecordedError, OutcomeUnknown) as error:
                return record_of(step, error)
        record = Record.of(plain)
        if frame.tree is not None:
            frame.tree.advance(record)
        return record

    def performing(
        self, step: Action, frame: StepFrame, own: dict[str, Any] | None = None
    ) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
        """Return the function that runs an action with the config that it gets.

        With `own` if the other one has the content of files in the place of their paths.
        """
        tools, rehearse, names = self.tools, self.rehearse, frame.names
        full = frame.full(step.common.id)
        verdict = self.verdicts.get(full)
        sealed: SealedInputs = names["inputs"]
        secrets = Secrets(sealed.secrets.values())
        inputs = sealed.revealed if secrets else sealed

        async def do(config: dict[str, Any]) -> dict[str, Any]:
            item = current_item()
            attempt, seed = (item.attempt, item.seed) if item is not None else (1, 0)
            context = StepContext(
                full,
                names["context"]["run_id"],
                inputs,
                names["item"],
                attempt,
                seed,
                verdict,
                self.workflow.directory,
            )
            config = config if own is None else own
            if rehearse:
                return rehearse(step, config, context)
            # The question of a gate is shown and recorded: it never sees the secrets.
            if not secrets or isinstance(step, GateStep):
                return await perform(tools, step, self._warmed(step, frame, config), context)
            return await self._perform_masked(step, frame.revealed(inputs), context, secrets)

        return do

    def _warmed(self, step: Action, frame: StepFrame, config: dict[str, Any]) -> dict[str, Any]:
        """Return the config of a step, of a warm prompt with what others begin with too."""
        if not isinstance(step, Prompt) or not (step.warm or self._is_warm):
            return config
        return with_shared_prefix(step, frame, config)

    async def _perform_masked(
        self, step: Action, frame: StepFrame, context: StepContext, secrets: Secrets
    ) -> dict[str, Any]:
        """Run an action whose expressions see the secrets; mask them in its result or error."""
        try:
            config = self._warmed(step, frame, configure(step, frame, self.workflow))
            found: dict[str, Any] = secrets.hide(await perform(self.tools, step, config, context))
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

    # --- steps that contain steps ----------------------------------------------------------------

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
                        clock = frame.run.context.clock
                        timer = clock.call_at(
                            clock.now() + common.timeout, lambda: limit.reschedule(0)
                        )
                        stack.callback(timer.cancel)
                    return await self._run_composite[type(step)](frame, step)
            except TimeoutError:
                if not limit.expired():  # another timeout's, not this step's
                    raise
                return failed(common, f"it took longer than {common.timeout:g} seconds")
            except BudgetSpent as error:
                if common.budget is None or error.budget is not frame.run.budget:
                    raise
                return failed(common, str(error))

    async def _if(self, frame: StepFrame, step: If) -> Record:
        found = holds(step.condition, frame)
        return await self._run_branch(
            frame, step, {"condition_result": found}, step.then if found else step.otherwise
        )

    async def _switch(self, frame: StepFrame, step: Switch) -> Record:
        value = resolve(step.expression, frame.names)
        text = "" if value is None else str(value).strip()
        cases = dict(step.cases)
        output = {
            "matched_case": text if text in cases else "__default__",
            "expression_value": value,
        }
        return await self._run_branch(frame, step, output, cases.get(text, step.default))

    async def _run_branch(
        self, frame: StepFrame, step: Step, output: dict[str, Any], steps: Sequence[Step]
    ) -> Record:
        frame.note(step, Record(step.common.type, "completed", output))
        return composite_record(step, output, await self.sequence(frame, steps))

    async def _loop(self, frame: StepFrame, step: Loop) -> Record:
        common, full = step.common, frame.full(step.common.id)
        again = step.at_least_once or holds(step.condition, frame)
        output: dict[str, Any] = {
            "condition_result": again,
            "max_iterations": step.max_iterations,
            "loop_type": "do-while" if step.at_least_once else "while",
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
            while again and halted is None and number < step.max_iterations:
                async with scope.child(f"{number:04}") as inner:
                    halted = await self.sequence(frame.of_round(inner, full, number), step.steps)
                number += 1
                again = halted is None and holds(step.condition, frame)
        return composite_record(
            step, {**output, "iterations": number, "max_reached": again}, halted
        )

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
            nested = StepFrame.outermost(
                scope,
                sealed,
                {**frame.names["context"], "workflow_dir": inner.directory},
                f"{frame.full(common.id)}:",
            )
            flow = Flow(
                inner,
                self.tools,
                self.verdicts,
                self.rehearse,
                width=self._width,
                slots=self._slots,
                warm=self._is_warm,
            )
            found = await flow._run_steps(nested)
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
