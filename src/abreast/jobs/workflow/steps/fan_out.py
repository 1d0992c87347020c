"""Runs fan-outs: the same steps for each item of a list.

A fan-out is a `run.map`, which gives it order, halting and resume.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from abreast.core.errors import OutcomeUnknown, RecordedError, TimedOut
from abreast.core.halting import EndsAt
from abreast.core.item import Item, position_key
from abreast.core.outcome import Done, Failed, Outcome
from abreast.jobs.files.expressions import ExpressionFailed, ExpressionText
from abreast.jobs.files.problems import shown
from abreast.jobs.workflow.load.analysis import every
from abreast.jobs.workflow.spec import (
    ACTIONS,
    Action,
    Command,
    FanOut,
    Prompt,
    Sample,
    Step,
    Workflow,
)
from abreast.jobs.workflow.steps.actions import (
    composite_record,
    configure,
    content_of,
    failed,
    holds,
    may_have_files,
    record_of,
    retry_of,
    timeout_of,
)
from abreast.jobs.workflow.steps.records import (
    ItemTree,
    Record,
    Records,
    StepFrame,
    StepHalted,
    StepPaused,
    part_name,
    tolerated,
)
from abreast.jobs.workflow.steps.values import as_width, reads, resolve, surroundings
from abreast.jobs.workflow.tools import CannotDo, WorkflowTools
from abreast.run.current import CurrentItem, current_item
from abreast.run.run import Run

FAN_OUT_STARTED: Final = "fan-out-started"
"""The event that records how many items there are: a map knows only once it has read them all."""
_STEP_ERRORS: Final = (StepHalted, TimedOut, RecordedError, OutcomeUnknown)
_JSON_TYPES: Final = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    dict: "a mapping",
}


class StepRunner(Protocol):
    """What a fan-out uses of the flow that it belongs to."""

    workflow: Workflow
    tools: WorkflowTools

    def lanes_of(self, step: Action, *, in_tree: bool) -> tuple[str, ...]:
        """Return the lanes on which an action holds a place while it works."""

    def make_room(self, width: int) -> None:
        """Allow as many actions at once, unless the user has set their number."""

    async def sequence(self, frame: StepFrame, steps: Sequence[Step]) -> Record | None:
        """Run the steps; return the record of the one that halts, if one does."""

    def performing(
        self, step: Action, frame: StepFrame
    ) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
        """Return the function that runs an action with its config."""


async def run_fan_out(flow: StepRunner, frame: StepFrame, step: FanOut) -> Record:
    """Run a fan-out of `flow`; wait for all items, or for the item that ends it."""
    common = step.common
    items = resolve(step.items, frame.names)
    wanted = resolve(step.max_concurrency, frame.names)
    output: dict[str, Any] = {
        "items": items,
        "max_concurrency": wanted,
        "item_count": 0,
        "results": [],
    }
    if step.template is not None:
        output["step_template"] = step.template
    if not isinstance(items, list):
        text = step.items.text if isinstance(step.items, ExpressionText) else repr(step.items)
        kind = _JSON_TYPES.get(type(items), type(items).__name__)
        error = f"items must be a list, and {text} is {kind}"
        return failed(common, error, {**output, "items": []})
    if len(items) > flow.tools.max_items:
        error = (
            f"there are {len(items)} items, and at most {flow.tools.max_items} are allowed "
            "(max_items under [workflow] in abreast.toml)"
        )
        return failed(common, error, {**output, "items": []})
    output["item_count"] = len(items)
    if not items:
        return Record(common.type, "completed", output)
    # A list of its own, so that items don't see the results grow.
    frame.note(step, Record(common.type, "completed", {**output, "results": []}))
    keys = _keys(frame, step, items)
    (key, times), *_ = Counter(keys).most_common(1)
    if times > 1:
        error = f"the key {shown(key)} is there more than once; a key must name one item"
        return failed(common, error, output)
    flow.make_room(as_width(wanted))
    width = min(as_width(wanted), len(items))
    frame.run.note(FAN_OUT_STARTED, {"items": len(items), "width": width}, beneath=common.id)
    halted, quarantine = await _run_items(flow, frame, step, keys, output, width=width)
    if quarantine:
        output["quarantine"] = quarantine
    return composite_record(step, output, halted)


async def _run_items(
    flow: StepRunner,
    frame: StepFrame,
    step: FanOut,
    keys: Sequence[str],
    output: dict[str, Any],
    *,
    width: int,
) -> tuple[Record | None, list[dict[str, Any]]]:
    """Run the map; return the record that halted it, and the items that did not succeed."""
    work = _ItemWork(flow, frame, step)
    halt = _HaltCondition(step, len(keys), work)
    # Of all else that its steps read, an item has the digest: when that changes, the recorded
    # result of the item is not used.
    around = surroundings(_reads(flow.workflow, step), frame.names)
    values = (
        Item(key, {"item": item, "around": around, **work.content(index, item)})
        for index, (key, item) in enumerate(zip(keys, output["items"], strict=True))
    )
    mapped = frame.run.map(
        work,
        halt.after_canary(values),
        width=width,
        name=step.common.id,
        until=halt,
        on_change="rerun",
        **work.options(),
    )
    quarantine: list[dict[str, Any]] = []
    results = output["results"]
    halted: Record | None = None
    try:
        async with mapped:
            async for outcome in mapped:
                record, nested = work.read(outcome)
                frame.merge(nested)
                results.append(record.output)
                if not record.clean:
                    quarantine.append({"index": outcome.index, "error": record.error})
                if record.halts:
                    halted = record  # in the end, the record of the item that ended it
    except StepPaused as paused:
        frame.merge(paused.nested)
        results.append(paused.record.output)
        return paused.record, quarantine
    if halt.reason:
        halted = failed(step.common, halt.reason)
    return halted if halt.stopped else None, quarantine


def _reads(flow: Workflow, step: FanOut) -> frozenset[tuple[str, ...]]:
    """Return the paths that its steps read.

    The workflow's own model, integration and options count where a step uses them.
    """
    asks = any(isinstance(one, (Prompt, Command, Sample)) for one in every(step.steps))
    return reads([*step.steps, *((flow.integration, flow.model, flow.options) if asks else ())])


class _ItemWork:
    """The function of the map: runs the steps of one item.

    If the fan-out has a single action, it runs directly as the map's item, without a path of its
    own.
    """

    def __init__(self, flow: StepRunner, frame: StepFrame, step: FanOut) -> None:
        self._flow = flow
        self._frame = frame
        self._step = step
        self._parent = frame.full(step.common.id)
        first = step.steps[0]
        self._action: Action | None = (
            first
            if len(step.steps) == 1 and isinstance(first, ACTIONS) and first.common.budget is None
            else None
        )
        self._has_tree = step.common.worktree or (
            self._action is not None and self._action.common.worktree
        )

    def options(self) -> dict[str, Any]:
        """Return the map's options: those of the single action, if there is one."""
        if self._action is None:
            return {}
        common = self._action.common
        return {
            "lane": common.lane,
            "retry": retry_of(common),
            "timeout": timeout_of(self._action),
            "effect": common.effect,
            "hold": self._flow.lanes_of(self._action, in_tree=self._has_tree),
        }

    def content(self, index: int, item: Any) -> dict[str, Any]:  # noqa: ANN401 - an item is anything
        """Return what an item's value has of the images of its single action: their content."""
        if self._action is None or not may_have_files(self._action):
            return {}
        frame = self._frame.of_item(self._frame.run, self._parent, index, item)
        try:
            config = configure(self._action, frame, self._flow.workflow)
            return content_of(self._flow.tools, self._action, config)
        except (ExpressionFailed, CannotDo) as error:  # it will be the failure of the item
            return {"images": str(error)}

    async def __call__(self, value: dict[str, Any]) -> dict[str, Any]:
        """Run one item and return its records as plain values.

        `StepHalted` with the records unless every step succeeded.
        """
        current = current_item()
        if current is None:
            raise RuntimeError("a fan-out's item runs inside of its map")
        if self._action is not None:
            return await self._run_action(self._action, current, value["item"])
        frame = self._frame_of(current.run, current, value["item"])
        halted = await self._flow.sequence(frame, self._step.steps)
        last = halted or frame.records[frame.full(self._step.steps[-1].common.id)]
        if last.fate == "paused":
            raise StepPaused(last, frame.records)
        if halted is not None or not all(record.clean for record in frame.records.values()):
            raise StepHalted(last, frame.records)
        return {
            "last": last.plain(),
            "steps": {name: record.plain() for name, record in frame.records.items()},
        }

    def _frame_of(self, run: Run, current: CurrentItem, item: Any) -> StepFrame:  # noqa: ANN401 - an item is anything
        frame = self._frame.of_item(run, self._parent, current.index, item)
        frame.tree = ItemTree(part_name(current.path)) if self._has_tree else None
        return frame

    async def _run_action(self, step: Action, current: CurrentItem, item: Any) -> dict[str, Any]:  # noqa: ANN401 - an item is anything
        flow = self._flow
        frame = self._frame_of(self._frame.run, current, item)
        try:
            if not holds(step.common.when, frame):
                return Record(step.common.type, "skipped", {}).plain()
            config = configure(step, frame, flow.workflow)
        except ExpressionFailed as error:
            raise StepHalted(failed(step.common, str(error))) from error
        try:
            return await flow.performing(step, frame)(config)
        except StepPaused as paused:
            name = frame.full(step.common.id)
            record = replace(paused.record, halted_at=name)
            raise StepPaused(record, {name: record}) from None

    def read(self, outcome: Outcome[Any]) -> tuple[Record, Records]:
        """Return the item's record and those of all its steps, from its outcome.

        A fault that is no failure of a step is raised.
        """
        if isinstance(outcome, Done):
            value = outcome.value
            if self._action is None:
                nested = {name: Record.of(plain) for name, plain in value["steps"].items()}
                return Record.of(value["last"]), nested
            return self._with_id(outcome.index, Record.of(value))
        if not isinstance(outcome, Failed) or not isinstance(outcome.error, _STEP_ERRORS):
            raise outcome.error if isinstance(outcome, Failed) else RuntimeError(str(outcome))
        error = outcome.error
        if isinstance(error, StepHalted) and self._action is None:
            return error.record, error.nested
        step = self._action or self._step
        record = record_of(step, error)
        return self._with_id(
            outcome.index, tolerated(record) if step.common.continue_on_error else record
        )

    def _with_id(self, index: int, record: Record) -> tuple[Record, Records]:
        name = f"{self._parent}:{self._step.steps[0].common.id}:{index}"
        if record.halts:
            record = replace(record, halted_at=name)
        return record, {name: record}


class _HaltCondition:
    """Decides with which item a fan-out ends; called once for each item, in their order."""

    def __init__(self, step: FanOut, count: int, work: _ItemWork) -> None:
        self.stopped = False
        self.reason: str | None = None  # why it ended, if no single item is the reason
        self._work = work
        self._seen = self._failures = 0
        self._canary = step.canary
        self._canary_items = min(step.canary.items, count) if step.canary is not None else 0
        self._canary_passed = asyncio.Event()
        self._max_failures: int | None = step.max_failures
        if step.min_success is not None:
            part = step.min_success
            required = math.ceil(part * count) if part < 1 else int(part)
            allowed = count if self._max_failures is None else self._max_failures
            self._max_failures = min(count - required, allowed)

    @property
    def ends(self) -> tuple[EndsAt[Any], ...]:
        """The items that end the fan-out, whatever the outcomes of those before them.

        The canary is decided in order only.
        """
        return (
            EndsAt(lambda outcome: self._record(outcome).fate == "aborted"),
            EndsAt(lambda outcome: self._record(outcome).halts, 1, self._canary_items)
            if self._max_failures is None
            else EndsAt(
                lambda outcome: not self._record(outcome).clean,
                self._max_failures + 1,
                self._canary_items,
            ),
        )

    def _record(self, outcome: Outcome[Any]) -> Record:
        """Return the record of an item.

        A fault that is no failure of a step aborts; it is raised where the outcome is read.
        """
        try:
            return self._work.read(outcome)[0]
        except Exception:  # noqa: BLE001 - raised where the outcome is read
            return Record("fan-out", "failed", {}, fate="aborted")

    def __call__(self, outcome: Outcome[Any]) -> bool:
        """Return whether the fan-out ends with this item."""
        record = self._record(outcome)
        self._seen += 1
        self._failures += not record.clean
        self.stopped = self._ends(record)
        return self.stopped

    def _ends(self, record: Record) -> bool:
        canary = self._canary
        if record.fate == "aborted":
            return True
        if canary is not None and self._seen <= self._canary_items:
            if self._seen == self._canary_items:
                good = self._seen - self._failures
                if good < canary.min_success * self._seen:
                    part = f"{canary.min_success:.0%} of them should"
                    self.reason = f"canary: {good} of the first {self._seen} succeeded, and {part}"
                    return True
                self._canary_passed.set()
            return False
        if self._max_failures is None:
            return record.halts
        if self._failures > self._max_failures and not record.clean:
            counts = f"{self._failures} of {self._seen} items failed"
            self.reason = f"{counts}, and at most {self._max_failures} may"
            return True
        return False

    def after_canary(self, values: Iterable[Any]) -> Iterable[Any] | AsyncIterator[Any]:
        """Return the items; with a canary, those after it only once it has passed."""
        return values if self._canary is None else self._wait_for_canary(values, self._canary.items)

    async def _wait_for_canary(self, values: Iterable[Any], first: int) -> AsyncIterator[Any]:
        for number, value in enumerate(values):
            if number == first:
                await self._canary_passed.wait()
            yield value


def _keys(frame: StepFrame, step: FanOut, items: Sequence[Any]) -> list[str]:
    """Return the key of each item: the value of `key`, or its position."""
    if step.key is None:
        return [position_key(index) for index in range(len(items))]
    keys = [step.key.value({**frame.names, "item": item}) for item in items]
    return [
        position_key(index) if key in (None, "") else str(key) for index, key in enumerate(keys)
    ]
