"""A study: which models, strategies, inputs and scores; and the cells that they make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from abreast.jobs.files.expressions import ExpressionText

CONTROLS: Final = ("empty", "echo", "truth")
"""Strategies that ask nobody and whose scores are known: nothing, the input itself, the right answer."""
CONTROL_LANE: Final = "controls"

Kind: TypeAlias = Literal["prompt", "python", "sample", "workflow", "control"]


@dataclass(frozen=True, slots=True)
class ModelArm:
    """A model with its parameters."""

    name: str
    label: str
    temperature: float | None = None
    max_tokens: int | None = None

    @property
    def lane(self) -> str:
        """The lane of its provider."""
        return self.name.partition("/")[0]

    def plain(self) -> dict[str, Any]:
        """What makes it this model, in JSON's types."""
        return {"name": self.name, "temperature": self.temperature, "max_tokens": self.max_tokens}


@dataclass(frozen=True, slots=True)
class StudyStrategy:
    """A way to get from an input to an output."""

    name: str
    kind: Kind
    line: int
    prompt: ExpressionText | None = None
    system: ExpressionText | None = None
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    call: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of a sample: its words."""
    file: str | None = None
    """Of a workflow."""
    code: str = ""
    """A digest of all that decides what it does: prompts, schemas, the module of a function, the file of a workflow."""


@dataclass(frozen=True, slots=True)
class StudyInput:
    """One input: a mapping with a name."""

    id: str
    value: Mapping[str, Any]
    truth: Any
    digest: str


@dataclass(frozen=True, slots=True)
class ScoreSpec:
    """How outputs are judged."""

    name: str
    kind: str
    argument: Any = None
    model: str | None = None
    code: str = ""
    line: int = 0

    def plain(self) -> dict[str, Any]:
        """What makes it this score."""
        return {
            "name": self.name,
            "kind": self.kind,
            "argument": self.argument,
            "model": self.model,
            "code": self.code,
        }


@dataclass(frozen=True, slots=True)
class Study:
    """A whole file, checked."""

    name: str
    file: str
    text: str
    models: tuple[ModelArm, ...]
    strategies: tuple[StudyStrategy, ...]
    inputs: tuple[StudyInput, ...]
    scores: tuple[ScoreSpec, ...]
    repeats: int = 1
    controls: tuple[str, ...] = ()
    lane_width: int = 4
    warnings: tuple[tuple[int, str], ...] = ()

    @property
    def arms(self) -> int:
        """How many pairs of model and strategy there are."""
        return len(self.models) * len(self.strategies)

    @property
    def scored_by(self) -> str:
        """A digest of its scores."""
        return digest([score.plain() for score in self.scores])

    def lanes(self) -> list[str]:
        """The lanes of its models, in the order in which they are named, then that of the controls."""
        named = list(dict.fromkeys(model.lane for model in self.models))
        return [*named, *([CONTROL_LANE] if self.controls else [])]

    def cells(self, lane: str, chosen: CellChoice | None = None) -> Iterator[Cell]:
        """The cells of a lane, so that the first n of them are balanced: all arms of an input, then the next input,
        then the next repeat. Where an input's turn of arms begins is shifted from one to the next.
        """  # noqa: D205
        chosen = chosen or CellChoice()
        arms = list(self._arms(lane, chosen))
        inputs = [one for one in self.inputs if chosen.takes_input(one.id)]
        for repeat in range(min(self.repeats, chosen.repeats or self.repeats)):
            for place, one in enumerate(inputs):
                turn = (place + repeat) % len(arms) if arms else 0
                for model, strategy in (*arms[turn:], *arms[:turn]):
                    yield Cell(lane, model, strategy, one, repeat)

    def _arms(self, lane: str, chosen: CellChoice) -> Iterator[tuple[ModelArm, StudyStrategy]]:
        if lane == CONTROL_LANE:
            nobody = ModelArm("control", "control")
            for name in self.controls:
                if chosen.takes(name, chosen.strategies):
                    yield nobody, StudyStrategy(name, "control", 0, code=name)
            return
        for model in self.models:
            for strategy in self.strategies:
                if model.lane == lane and chosen.takes_arm(model, strategy):
                    yield model, strategy


@dataclass(frozen=True, slots=True)
class CellChoice:
    """Which part of a study is wanted; nothing named means all of it."""

    models: frozenset[str] = frozenset()
    strategies: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    repeats: int | None = None
    barred: frozenset[tuple[str, str]] = frozenset()
    """Pairs of model and strategy that can't run here."""

    @staticmethod
    def takes(name: str, wanted: frozenset[str]) -> bool:
        """Whether a name is among those wanted."""
        return not wanted or name in wanted

    def takes_input(self, name: str) -> bool:
        """Whether an input is wanted."""
        return self.takes(name, self.inputs)

    def takes_arm(self, model: ModelArm, strategy: StudyStrategy) -> bool:
        """Whether an arm is wanted, and can run."""
        wanted = self.takes(model.label, self.models) and self.takes(strategy.name, self.strategies)
        return wanted and (model.label, strategy.name) not in self.barred


@dataclass(frozen=True, slots=True)
class Cell:
    """One model, strategy, input and repeat."""

    lane: str
    model: ModelArm
    strategy: StudyStrategy
    input: StudyInput
    repeat: int

    @property
    def key(self) -> str:
        """Its name, which stays the same when what is in it is edited."""
        return f"{self.model.label}~{self.strategy.name}~{self.input.id}~{self.repeat}"

    @property
    def made_of(self) -> str:
        """What it is made of, by content, in three words: model, strategy, input."""
        return f"{_arm_digest(self.model)} {self.strategy.code} {self.input.digest}"

    @property
    def asks(self) -> list[str]:
        """What decides its reply: when any of it changes, the model is asked again."""
        return [self.key, self.made_of]

    def value(self, scores: str) -> list[str]:
        """What it is: when any of it changes, what is recorded is another cell's.

        `scores` is the study's `scored_by`.

        Names and digests alone: a value of many parts takes ten times as long to write and compare.
        """
        return [self.key, self.made_of, scores]


@lru_cache(maxsize=1024)
def _arm_digest(model: ModelArm) -> str:
    return digest(model.plain())


def digest(value: object) -> str:
    """A short name for what a value is."""
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, sort_keys=True, default=repr, separators=(",", ":"))
    )
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
