"""The record of a step, and the frame of names in which steps run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self, TypeAlias

from abreast.core.errors import AbreastError, Paused
from abreast.core.item import unescape
from abreast.jobs.workflow.spec import Step
from abreast.run.run import Run

Status: TypeAlias = Literal["completed", "failed", "paused", "skipped"]
Fate: TypeAlias = Literal["completed", "failed", "paused", "aborted"]


@dataclass(frozen=True, slots=True)
class Record:
    """A step's result. `fate` is its effect on later steps: a tolerated failure does not halt."""

    type: str
    status: Status
    output: dict[str, Any]
    error: str | None = None
    fate: Fate = "completed"
    input: Any = None
    halted_at: str | None = None
    """Of one that halts: the full id of the step that began it, this one or one inside it.

    It is not recorded.
    """

    @property
    def halts(self) -> bool:
        """Whether the steps after it are not run."""
        return self.fate != "completed"

    @property
    def clean(self) -> bool:
        """Whether it succeeded or was skipped: any other step is run again on resume."""
        return self.status in ("completed", "skipped")

    def names(self) -> dict[str, Any]:
        """Return the value of `steps.<id>` in expressions."""
        return {
            "type": self.type,
            "status": self.status,
            "output": self.output,
            "input": self.input,
            "error": self.error,
        }

    def plain(self) -> dict[str, Any]:
        """Return it as the journal stores it: default values are left out."""
        defaults = {"status": "completed", "error": None, "fate": "completed", "input": None}
        changed = {
            word: getattr(self, word)
            for word, value in defaults.items()
            if getattr(self, word) != value
        }
        return {"type": self.type, "output": self.output, **changed}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Make a Record from what `plain` returned."""
        return cls(**{"status": "completed", **facts})


Records: TypeAlias = dict[str, Record]
"""By full id, in the order in which a sequential run would have made them."""


class StepHalted(AbreastError):
    """A step did not succeed. It is recorded as a failure, so that a resumed run tries it again."""

    is_sentence = True

    def __init__(
        self, record: Record, nested: Records | None = None, *, retryable: bool | None = None
    ) -> None:
        """`nested` are the records inside it; `retryable` is None if it is not known."""
        super().__init__(record.error or "")
        self.record = record
        self.nested: Records = nested or {}
        self.retryable = retryable

    @property
    def details(self) -> dict[str, object]:
        """What is recorded beside the message."""
        return {"output": self.record.output}

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), retryable=self.retryable), (self.record, self.nested)


class StepPaused(Paused):
    """A gate waits for a decision.

    Work beside it is not cancelled but goes on to its end: a resumed run must not repeat it.
    """

    drains = True

    def __init__(self, record: Record, nested: Records | None = None) -> None:
        """`nested` are the records of the steps inside it."""
        super().__init__(record.error or "")
        self.record = record
        self.nested: Records = nested or {}

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.record, self.nested)


@dataclass(slots=True)
class ItemTree:
    """The worktree of an item of a fan-out, in which its steps work one after the other."""

    part: str
    base: str | None = None
    after: str | None = None

    def advance(self, record: Record) -> None:
        """Let the next step begin where this one has ended."""
        tree = record.output.get("tree")
        if record.fate == "completed" and isinstance(tree, dict) and "result" in tree:
            self.base, self.after = str(tree["base"]), str(tree["result"])


def part_name(path: str) -> str:
    """Return the name of what is made in the worktree of the item at `path`, for the merge."""
    return "/".join(unescape(part) for part in path.split("/")[1:])


class StepFrame:
    """The scope in which steps run: their paths, the names they see, the records before them."""

    __slots__ = ("_ids", "full", "mine", "names", "outside", "records", "run", "tree")

    def __init__(
        self,
        run: Run,
        names: dict[str, Any],
        full: Callable[[str], str],
        records: Records,
        ids: Callable[[str], tuple[str, ...]] | None = None,
    ) -> None:
        """`full` makes the full id of a step (`parent:template:index` within an item).

        `ids` makes all ids under which `records` has it.
        """
        self.run = run
        self.names = names
        self.records = records
        self.full = full
        self._ids = ids or (lambda name: (full(name),))
        self.mine: dict[str, Any] = {}
        """The names that steps here have added."""
        self.tree: ItemTree | None = None
        """The worktree that its steps share; None: they have none, or each its own."""
        self.outside: frozenset[str] = frozenset()
        """In an item of a fan-out: the steps before it, whose records are the same for all items.
        """

    @classmethod
    def outermost(
        cls, run: Run, inputs: Mapping[str, Any], context: Mapping[str, str], prefix: str = ""
    ) -> StepFrame:
        """Make the frame of a whole workflow. `context` has `run_id` and `workflow_dir`."""
        own = inputs if isinstance(inputs, dict) else dict(inputs)
        names = {"inputs": own, "steps": {}, "item": None, "fan_in": {}, "context": dict(context)}
        return cls(run, names, lambda name: f"{prefix}{name}", {})

    def revealed(self, inputs: dict[str, Any]) -> StepFrame:
        """Return a copy in which expressions see these inputs."""
        frame = StepFrame(self.run, {**self.names, "inputs": inputs}, self.full, {})
        frame.tree, frame.outside = self.tree, self.outside
        return frame

    def is_constant(self, path: tuple[str, ...]) -> bool:
        """Return whether a path of an expression has the same value in all items of a fan-out."""
        root, *rest = path
        if root == "steps":
            return bool(rest) and rest[0] in self.outside
        return root in {"inputs", "context"}

    def note(self, step: Step, record: Record) -> None:
        """Add the record of a step that has ended."""
        name = step.common.id
        self.names["steps"][name] = self.mine[name] = record.names()
        for one in self._ids(name):
            self.records[one] = record

    def of_item(self, run: Run, parent: str, index: int, item: Any) -> StepFrame:  # noqa: ANN401 - an item is anything
        """Make the frame of one item of a fan-out: only the item sees the steps that run in it."""
        names = {**self.names, "steps": dict(self.names["steps"]), "item": item}
        frame = StepFrame(run, names, lambda name: f"{parent}:{name}:{index}", {})
        frame.outside = frozenset(self.names["steps"])
        return frame

    def of_round(self, run: Run, parent: str, number: int) -> StepFrame:
        """Make the frame of a round of a loop, with the same names.

        A plain id stands for the newest round; each round has its own ids too.
        """
        plain = self._ids

        def own(name: str) -> str:
            return f"{parent}:{name}:{number}"

        # The last id that is new in the records is the one that spec-kit reports as current step.
        return (
            self._sharing_names(run, own, lambda name: (*plain(name), own(name)))
            if number
            else self._sharing_names(run, self.full, lambda name: (own(name), *plain(name)))
        )

    def within(self, run: Run) -> StepFrame:
        """Return a frame with the same names whose paths lie in `run`."""
        return self._sharing_names(run, self.full, self._ids)

    def _sharing_names(
        self, run: Run, full: Callable[[str], str], ids: Callable[[str], tuple[str, ...]]
    ) -> StepFrame:
        frame = StepFrame(run, self.names, full, self.records, ids)
        frame.mine, frame.tree, frame.outside = self.mine, self.tree, self.outside
        return frame

    def of_branch(self, run: Run) -> StepFrame:
        """Make the frame of a parallel step: it has its own records, which are merged later."""
        frame = StepFrame(
            run, {**self.names, "steps": dict(self.names["steps"])}, self.full, {}, self._ids
        )
        frame.outside = self.outside
        return frame

    def merge(self, records: Mapping[str, Record]) -> None:
        """Add the records of another frame."""
        self.records.update(records)


def status_of(fate: Fate) -> Status:
    """Return the status of a step with that fate."""
    return "completed" if fate == "completed" else "paused" if fate == "paused" else "failed"


def tolerated(record: Record) -> Record:
    """Return the record of a step with continue_on_error: its failure does not halt the run.

    An abort and a pause still do.
    """
    return replace(record, fate="completed") if record.fate == "failed" else record
