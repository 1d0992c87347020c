"""Fan-out: the same steps for each item of a list.

It is `run.map`, and so are its order, its halt and its resume.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from abreast.core.errors import OutcomeUnknown, RecordedError, TimedOut
from abreast.core.halting import EndsAt
from abreast.core.item import Item, escape, position_key
from abreast.core.outcome import Done, Failed, Outcome
from abreast.jobs.files.expressions import ExpressionFailed, ExpressionText
from abreast.jobs.files.problems import shown
from abreast.jobs.workflow.load.analysis import every
from abreast.jobs.workflow.spec import LEAVES, Command, FanOut, Leaf, Prompt, Sample
from abreast.jobs.workflow.steps.actions import (
    configure,
    failed,
    record_of,
    retry_of,
    runs,
    skipped,
    timeout_of,
)
from abreast.jobs.workflow.steps.records import (
    Record,
    Records,
    StepFrame,
    StepHalted,
    StepPaused,
    status_of,
    tolerated,
)
from abreast.jobs.workflow.steps.values import reads, resolve, surroundings
from abreast.jobs.workflow.steps.width import as_width
from abreast.run.current import current_item

if TYPE_CHECKING:
    from abreast.jobs.workflow.job import Flow

FAN_OUT_STARTED: Final = "fan-out-started"
"""The event that says how many items there are: a map alone knows only when it has read them all."""
_OURS: Final = (StepHalted, TimedOut, RecordedError, OutcomeUnknown)
_JSON_TYPES: Final = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    dict: "a mapping",
}


class FanOuts:
    """Runs the fan-outs of one flow."""

    def __init__(self, flow: Flow) -> None:
        """For the steps of this flow."""
        self._flow = flow

    async def run(self, frame: StepFrame, step: FanOut) -> Record:
        """Fan out, and wait for all of it, or for the item that ends it."""
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
            said = step.items.text if isinstance(step.items, ExpressionText) else repr(step.items)
            what = _JSON_TYPES.get(type(items), type(items).__name__)
            return failed(
                common, f"items must be a list, and {said} is {what}", {**output, "items": []}
            )
        if len(items) > self._flow.kit.max_items:
            most = f"at most {self._flow.kit.max_items} are allowed (max_items under [workflow] in abreast.toml)"
            return failed(
                common, f"there are {len(items)} items, and {most}", {**output, "items": []}
            )
        output["item_count"] = len(items)
        if not items:
            return Record(common.type, "completed", output)
        frame.note(
            step, Record(common.type, "completed", {**output, "results": []})
        )  # items don't see them grow
        keys = _keys(frame, step, items)
        if twice := _twice(keys):
            return failed(
                common, f"the key {twice} is there more than once; a key must name one item", output
            )
        self._flow.make_room(as_width(wanted))
        width = min(as_width(wanted), len(items))
        if (journal := frame.run.setting.journal) is not None:
            path = f"{frame.run.path}/{escape(common.id)}"
            journal.emit(FAN_OUT_STARTED, path, data={"items": len(items), "width": width})
        halted, quarantine = await self._each(frame, step, keys, width, output)
        if quarantine:
            output["quarantine"] = quarantine
        if halted is None:
            return Record(common.type, "completed", output)
        status, at = status_of(halted.fate), halted.halted_at
        return Record(common.type, status, output, halted.error, halted.fate, halted_at=at)

    async def _each(
        self,
        frame: StepFrame,
        step: FanOut,
        keys: Sequence[str],
        width: int,
        output: dict[str, Any],
    ) -> tuple[Record | None, list[dict[str, Any]]]:
        """Run the map; the record that halted it, and the items that did not succeed."""
        one = _OneItem(self._flow, frame, step)
        judge = _Judge(step, len(keys), one)
        values = _values(keys, output["items"], surroundings(self._reads(step), frame.names))
        mapped = frame.run.map(
            one,
            judge.after_canary(values),
            width=width,
            name=step.common.id,
            until=judge,
            on_change="rerun",
            **one.options(),
        )
        quarantine: list[dict[str, Any]] = []
        results = output["results"]
        halted: Record | None = None
        try:
            async with mapped:
                async for outcome in mapped:
                    record, nested = one.read(outcome)
                    frame.merge(nested)
                    results.append(record.output)
                    if not record.clean:
                        quarantine.append({"index": outcome.index, "error": record.error})
                    if record.halts:
                        halted = record  # the last one, if it is the one that ended it
        except StepPaused as paused:
            frame.merge(paused.nested)
            results.append(paused.record.output)
            return paused.record, quarantine
        if not judge.stopped:
            return None, quarantine
        if judge.verdict:
            halted = failed(step.common, judge.verdict)
        return halted, quarantine

    def _reads(self, step: FanOut) -> frozenset[tuple[str, ...]]:
        """What its steps read, the workflow's own model and agent included where one asks such."""
        flow = self._flow.workflow
        asks = any(isinstance(one, (Prompt, Command, Sample)) for one in every(step.steps))
        return reads([*step.steps, *((flow.integration, flow.model, flow.options) if asks else ())])


class _OneItem:
    """What is done with one item.

    In the map's own item where the template is one step that does something.
    """

    def __init__(self, flow: Flow, frame: StepFrame, step: FanOut) -> None:
        self._flow = flow
        self._frame = frame
        self._step = step
        self._parent = frame.full(step.common.id)
        first = step.steps[0]
        self._leaf: Leaf | None = (
            first
            if len(step.steps) == 1 and isinstance(first, LEAVES) and first.common.budget is None
            else None
        )

    def options(self) -> dict[str, Any]:
        """What the one step says of itself is said of the items."""
        if self._leaf is None:
            return {}
        common = self._leaf.common
        return {
            "lane": common.lane,
            "retry": retry_of(common),
            "timeout": timeout_of(self._leaf),
            "effect": common.effect,
            "hold": self._flow.place_of(self._leaf),
        }

    async def __call__(self, value: dict[str, Any]) -> dict[str, Any]:
        """The item's records, as plain values.

        `StepHalted` with them unless all of it succeeded.
        """
        work = current_item()
        if work is None:
            raise RuntimeError("a fan-out's item runs inside of its map")
        if self._leaf is not None:
            return await self._one_step(self._leaf, work.index, value["item"])
        frame = self._frame.of_item(work.run, self._parent, work.index, value["item"])
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

    async def _one_step(self, step: Leaf, index: int, item: Any) -> dict[str, Any]:  # noqa: ANN401 - anything
        flow = self._flow
        frame = self._frame.of_item(self._frame.run, self._parent, index, item)
        try:
            if not runs(step, frame):
                return skipped(step.common).plain()
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
        """What an outcome says: the item's record, and those of all its steps.

        A fault that is no step's is raised.
        """
        if isinstance(outcome, Done):
            value = outcome.value
            if self._leaf is None:
                nested = {name: Record.of(plain) for name, plain in value["steps"].items()}
                return Record.of(value["last"]), nested
            return self._alone(outcome.index, Record.of(value))
        if not isinstance(outcome, Failed) or not isinstance(outcome.error, _OURS):
            raise outcome.error if isinstance(outcome, Failed) else RuntimeError(str(outcome))
        error = outcome.error
        if isinstance(error, StepHalted) and self._leaf is None:
            return error.record, error.nested
        step = self._leaf or self._step
        record = record_of(step, error)
        return self._alone(
            outcome.index, tolerated(record) if step.common.continue_on_error else record
        )

    def _alone(self, index: int, record: Record) -> tuple[Record, Records]:
        name = f"{self._parent}:{self._step.steps[0].common.id}:{index}"
        if record.halts:
            record = replace(record, halted_at=name)
        return record, {name: record}


class _Judge:
    """Where a fan-out ends: asked once for each item, in the order of the items."""

    def __init__(self, step: FanOut, count: int, one: _OneItem) -> None:
        self.stopped = False
        self.verdict: str | None = None
        """Why, if no single item is the reason."""
        self._one = one
        self._seen = self._bad = 0
        self._canary = step.canary
        self._first = min(step.canary.items, count) if step.canary is not None else 0
        self._passed = asyncio.Event()
        self._most: int | None = step.max_failures
        if step.min_success is not None:
            part = step.min_success
            least = math.ceil(part * count) if part < 1 else int(part)
            self._most = min(count - least, count if self._most is None else self._most)

    @property
    def ends(self) -> tuple[EndsAt[Any], ...]:
        """Which items end the fan-out whatever became of those before them.

        What the canary says, only in order.
        """
        abort: EndsAt[Any] = EndsAt(self._aborts)
        if self._most is None:
            return (abort, EndsAt(self._halts, 1, self._first))
        return (abort, EndsAt(self._fails, self._most + 1, self._first))

    def _aborts(self, outcome: Outcome[Any]) -> bool:
        record = self._record(outcome)
        return record is None or record.fate == "aborted"

    def _halts(self, outcome: Outcome[Any]) -> bool:
        record = self._record(outcome)
        return record is not None and record.halts

    def _fails(self, outcome: Outcome[Any]) -> bool:
        record = self._record(outcome)
        return record is not None and not record.clean

    def _record(self, outcome: Outcome[Any]) -> Record | None:
        """What became of an item.

        None for a fault that is no step's, which is raised where the outcome is read.
        """
        try:
            return self._one.read(outcome)[0]
        except Exception:  # noqa: BLE001 - raised where the outcome is read
            return None

    def __call__(self, outcome: Outcome[Any]) -> bool:
        """Whether the fan-out ends with this item."""
        record = self._record(outcome)
        if record is None:
            self.stopped = True
            return True
        self._seen += 1
        self._bad += not record.clean
        self.stopped = self._ends(record)
        return self.stopped

    def _ends(self, record: Record) -> bool:
        canary = self._canary
        if record.fate == "aborted":
            return True
        if canary is not None and self._seen <= self._first:
            if self._seen == self._first:
                good = self._seen - self._bad
                if good < canary.min_success * self._seen:
                    part = f"{canary.min_success:.0%} of them should"
                    self.verdict = f"canary: {good} of the first {self._seen} succeeded, and {part}"
                    return True
                self._passed.set()
            return False
        if self._most is None:
            return record.halts
        if self._bad > self._most and not record.clean:
            self.verdict = f"{self._bad} of {self._seen} items failed, and at most {self._most} may"
            return True
        return False

    def after_canary(self, values: Iterable[Any]) -> Iterable[Any] | AsyncIterator[Any]:
        """The items; with a canary, most of them only after it."""
        return values if self._canary is None else self._held_back(values, self._canary.items)

    async def _held_back(self, values: Iterable[Any], first: int) -> AsyncIterator[Any]:
        for number, value in enumerate(values):
            if number == first:
                await self._passed.wait()
            yield value


def _keys(frame: StepFrame, step: FanOut, items: Sequence[Any]) -> list[str]:
    """The name of each item: its own, or its position."""
    if step.key is None:
        return [position_key(index) for index in range(len(items))]
    named = [step.key.value({**frame.names, "item": item}) for item in items]
    return [
        position_key(index) if name in (None, "") else str(name) for index, name in enumerate(named)
    ]


def _twice(keys: Sequence[str]) -> str | None:
    """A key that is there more than once, for a sentence."""
    if len(set(keys)) == len(keys):
        return None
    return shown(Counter(keys).most_common(1)[0][0])


def _values(keys: Sequence[str], items: Sequence[Any], around: str) -> Iterator[Item[Any]]:
    """The items, each with a digest of all else that its steps read, by which a changed one is known."""
    for key, item in zip(keys, items, strict=True):
        yield Item(key, {"item": item, "around": around})
