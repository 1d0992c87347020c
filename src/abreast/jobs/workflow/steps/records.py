"""What becomes of a step, and the names that later steps know it by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

from abreast.core.errors import AbreastError, Paused

if TYPE_CHECKING:
    from abreast.jobs.workflow.spec import Step
    from abreast.run.run import Run

Status: TypeAlias = Literal["completed", "failed", "paused", "skipped"]
Fate: TypeAlias = Literal["completed", "failed", "paused", "aborted"]

HALTING: Final[frozenset[Fate]] = frozenset({"failed", "paused", "aborted"})


@dataclass(frozen=True, slots=True)
class Record:
    """A step's result. `fate` is what it means for the steps after it: a tolerated failure lets them go on."""

    type: str
    status: Status
    output: dict[str, Any]
    error: str | None = None
    fate: Fate = "completed"
    input: Any = None
    halted_at: str | None = None
    """Of one that halts: the full id of the step in which that began, itself or one beneath it.

    It is not recorded.
    """

    @property
    def halts(self) -> bool:
        """Whether the steps after it don't run."""
        return self.fate != "completed"

    @property
    def clean(self) -> bool:
        """Whether it succeeded, or there was nothing to do: anything else is run again when the run is resumed."""
        return self.status in ("completed", "skipped")

    def names(self) -> dict[str, Any]:
        """What `steps.<id>` gives."""
        return {
            "type": self.type,
            "status": self.status,
            "output": self.output,
            "input": self.input,
            "error": self.error,
        }

    def plain(self) -> dict[str, Any]:
        """As the journal keeps it: what is usual is left out."""
        facts: dict[str, Any] = {"type": self.type, "output": self.output}
        usual = {"status": "completed", "error": None, "fate": "completed", "input": None}
        facts |= {
            word: getattr(self, word)
            for word, value in usual.items()
            if getattr(self, word) != value
        }
        return facts

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """From what `plain` gave."""
        return cls(**{"status": "completed", **facts})


Records: TypeAlias = dict[str, Record]
"""By full id, in the order in which a plain loop would have made them."""


class StepHalted(AbreastError):
    """A step did not succeed. It is recorded as a failure, so that a resumed run tries it again."""

    is_sentence = True

    def __init__(
        self, record: Record, nested: Records | None = None, *, retryable: bool | None = None
    ) -> None:
        """With the steps beneath it, where it has some, and whether trying again can help, where that is known."""
        super().__init__(record.error or "")
        self.record = record
        self.nested: Records = nested or {}
        self.retryable = retryable

    @property
    def details(self) -> dict[str, object]:
        """What is recorded beside the sentence."""
        return {"output": self.record.output}

    def __reduce__(self) -> tuple[object, ...]:
        """As a pickle: all of it."""
        return partial(type(self), retryable=self.retryable), (self.record, self.nested)


class StepPaused(Paused):
    """A gate waits for a decision.

    What runs beside it ends by itself: a resumed run must not start it again.
    """

    drains = True

    def __init__(self, record: Record, nested: Records | None = None) -> None:
        """With the steps beneath it, where it has some."""
        super().__init__(record.error or "")
        self.record = record
        self.nested: Records = nested or {}

    def __reduce__(self) -> tuple[object, ...]:
        """As a pickle: all of it."""
        return type(self), (self.record, self.nested)


class StepFrame:
    """Where steps run: the scope of their paths, the names they see, and what became of those before them."""

    __slots__ = ("_full", "_ids", "mine", "names", "records", "run")

    def __init__(
        self,
        run: Run,
        names: dict[str, Any],
        full: Callable[[str], str],
        records: Records,
        ids: Callable[[str], tuple[str, ...]] | None = None,
    ) -> None:
        """`full` makes the full id of a step here, `ids` all ids under which it is added to the `records`."""
        self.run = run
        self.names = names
        self.records = records
        self._full = full
        self._ids = ids or (lambda name: (full(name),))
        self.mine: dict[str, Any] = {}
        """The names that steps here have added."""

    @classmethod
    def outermost(
        cls, run: Run, inputs: Mapping[str, Any], context: Mapping[str, str], prefix: str = ""
    ) -> StepFrame:
        """Of a workflow: nothing has happened in it. `context` has `run_id` and `workflow_dir`."""
        own = inputs if isinstance(inputs, dict) else dict(inputs)
        names = {"inputs": own, "steps": {}, "item": None, "fan_in": {}, "context": dict(context)}
        return cls(run, names, lambda name: f"{prefix}{name}", {})

    @property
    def inputs(self) -> dict[str, Any]:
        """The workflow's inputs."""
        found: dict[str, Any] = self.names["inputs"]
        return found

    def revealed(self, inputs: dict[str, Any]) -> StepFrame:
        """The same, in which expressions see these inputs."""
        return StepFrame(self.run, {**self.names, "inputs": inputs}, self._full, {})

    def full(self, name: str) -> str:
        """The full id of a step here: `parent:template:index` within an item."""
        return self._full(name)

    def note(self, step: Step, record: Record) -> None:
        """A step has ended."""
        name = step.common.id
        self.names["steps"][name] = self.mine[name] = record.names()
        for one in self._ids(name):
            self.records[one] = record

    def of_item(self, run: Run, parent: str, index: int, item: Any) -> StepFrame:  # noqa: ANN401 - an item is anything
        """For one item of a fan-out: what it does is seen by itself alone."""
        names = {**self.names, "steps": dict(self.names["steps"]), "item": item}
        return StepFrame(run, names, lambda name: f"{parent}:{name}:{index}", {})

    def of_round(self, run: Run, parent: str, number: int) -> StepFrame:
        """For a round of a loop: the same names. A plain id is the newest round's.

        Each round has its own ids too.
        """
        plain = self._ids

        def own(name: str) -> str:
            return f"{parent}:{name}:{number}"

        # The last id that is new in the records is the one that spec-kit tells as the current step.
        if number == 0:
            return self._sharing(run, self._full, lambda name: (own(name), *plain(name)))
        return self._sharing(run, own, lambda name: (*plain(name), own(name)))

    def within(self, run: Run) -> StepFrame:
        """The same, in a narrower scope."""
        return self._sharing(run, self._full, self._ids)

    def _sharing(
        self, run: Run, full: Callable[[str], str], ids: Callable[[str], tuple[str, ...]]
    ) -> StepFrame:
        frame = StepFrame(run, self.names, full, self.records, ids)
        frame.mine = self.mine
        return frame

    def of_branch(self, run: Run) -> StepFrame:
        """For a step that runs beside others: it sees what it needs, and is merged when it is its turn."""
        names = {**self.names, "steps": dict(self.names["steps"])}
        return StepFrame(run, names, self._full, {}, self._ids)

    def merge(self, records: Mapping[str, Record]) -> None:
        """Add what became of steps elsewhere."""
        self.records.update(records)


def status_of(fate: Fate) -> Status:
    """A step's status after what happened to it, or beneath it."""
    return "completed" if fate == "completed" else "paused" if fate == "paused" else "failed"


def tolerated(record: Record) -> Record:
    """The same, if its failure is to be lived with; an abort and a pause are not."""
    return replace(record, fate="completed") if record.fate == "failed" else record
