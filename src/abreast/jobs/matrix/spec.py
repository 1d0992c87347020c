"""A study: its models, strategies, inputs and scores, and the cells that they make."""

import hashlib
import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from abreast.jobs.files.expressions import ExpressionText
from abreast.models.chat_form import present
from abreast.models.media import MediaFile
from abreast.models.port import Effort

CONTROLS: Final = ("empty", "echo", "truth")
"""Strategies that call no model and whose scores are known.

They return nothing, the input itself, or the right answer.
"""
CONTROL_LANE: Final = "controls"

Kind: TypeAlias = Literal["prompt", "python", "sample", "workflow", "control"]


@dataclass(frozen=True, slots=True)
class ModelArm:
    """A model with its parameters."""

    name: str
    label: str
    temperature: float | None = None
    max_tokens: int | None = None
    reasoning: Effort | None = None
    thinking_tokens: int | None = None

    @property
    def lane(self) -> str:
        """The lane of its provider."""
        return self.name.partition("/")[0]

    def plain(self) -> dict[str, Any]:
        """The name and parameters, in JSON's types."""
        return {
            "name": self.name,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            **present(reasoning=self.reasoning, thinking_tokens=self.thinking_tokens),
        }


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
    images: tuple[str, ...] | None = None
    """The fields of an input that are paths of images and PDF files; None: those that say so."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """For a sample: its settings."""
    file: str | None = None
    """For a workflow: its file."""
    code: str = ""
    """A digest of everything that decides what it does.

    That is prompts, schemas, the module of a function, the file of a workflow.
    """
    reasoning: Effort | None = None
    thinking_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StudyInput:
    """One input: a mapping with a name."""

    id: str
    value: Mapping[str, Any]
    truth: Any
    digest: str
    files: Mapping[str, MediaFile] = field(default_factory=dict)
    """Images and PDF files, by field; a field that says so is a mapping `{image: path}`."""

    @property
    def image_paths(self) -> dict[str, str]:
        """The whole paths of the fields that are `{image: path}`."""
        return {
            name: file.path or ""
            for name, file in self.files.items()
            if is_image(self.value.get(name))
        }

    def files_for(self, strategy: StudyStrategy) -> dict[str, MediaFile]:
        """The files that a strategy sends with a prompt, by field."""
        if strategy.kind not in ("prompt", "sample"):
            return {}
        if strategy.images is not None:
            return {name: self.files[name] for name in strategy.images}
        return {name: file for name, file in self.files.items() if is_image(self.value.get(name))}


def by_content(
    value: Mapping[str, Any], files: Mapping[str, MediaFile], sent: Container[str] = ()
) -> dict[str, Any]:
    """An input with the content of its images in place of their paths, as digests have it.

    That is of fields that say so, and of those that are `sent`; in others a path is a text.
    """
    marks = {
        name: {"image": file.mark}
        for name, file in files.items()
        if name in sent or is_image(value[name])
    }
    return {**value, **marks}


def is_image(value: object) -> bool:
    """Whether a value of an input is `{image: path}`."""
    return (
        isinstance(value, Mapping) and set(value) == {"image"} and isinstance(value["image"], str)
    )


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
        """Everything that decides the score, in JSON's types."""
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
    warm: bool = False
    """Whether of prompts that begin alike one goes ahead, so that the others find it cached."""
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
        """The lanes of its models in the order of the file, then that of the controls."""
        named = list(dict.fromkeys(model.lane for model in self.models))
        return [*named, *([CONTROL_LANE] if self.controls else [])]

    def cells(self, lane: str, chosen: "CellChoice | None" = None) -> "Iterator[Cell]":
        """The cells of a lane, ordered so that the first n of them are balanced.

        All arms of an input come first, then the next input, then the next repeat. The first arm is
        shifted by one from each input to the next.
        """
        chosen = chosen or CellChoice()
        arms = list(self._arms(lane, chosen))
        inputs = [one for one in self.inputs if chosen.takes(one.id, chosen.inputs)]
        for repeat in range(min(self.repeats, chosen.repeats or self.repeats)):
            for place, one in enumerate(inputs):
                shift = (place + repeat) % len(arms) if arms else 0
                for model, strategy in (*arms[shift:], *arms[:shift]):
                    yield Cell(lane, model, strategy, one, repeat)

    def _arms(self, lane: str, chosen: "CellChoice") -> Iterator[tuple[ModelArm, StudyStrategy]]:
        if lane == CONTROL_LANE:
            no_model = ModelArm("control", "control")
            for name in self.controls:
                if chosen.takes(name, chosen.strategies):
                    yield no_model, StudyStrategy(name, "control", 0, code=name)
            return
        for model in self.models:
            for strategy in self.strategies:
                if model.lane == lane and chosen.takes_arm(model, strategy):
                    yield model, strategy


@dataclass(frozen=True, slots=True)
class CellChoice:
    """Which part of a study to run; an empty set means all."""

    models: frozenset[str] = frozenset()
    strategies: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    repeats: int | None = None
    barred: frozenset[tuple[str, str]] = frozenset()
    """Pairs of model and strategy that can't run here."""

    @staticmethod
    def takes(name: str, wanted: frozenset[str]) -> bool:
        """Whether a name is among those chosen."""
        return not wanted or name in wanted

    def takes_arm(self, model: ModelArm, strategy: StudyStrategy) -> bool:
        """Whether an arm is chosen, and can run."""
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
        """Its name, which stays the same when its content is edited."""
        return f"{self.model.label}~{self.strategy.name}~{self.input.id}~{self.repeat}"

    @property
    def made_of(self) -> str:
        """The digests of its model, strategy and input, separated by spaces."""
        return f"{_arm_digest(self.model)} {self.strategy.code} {self._input_digest}"

    @property
    def files(self) -> tuple[MediaFile, ...]:
        """The images and PDF files that go with its prompt."""
        return tuple(self.input.files_for(self.strategy).values())

    @property
    def _input_digest(self) -> str:
        """The digest of its input, with the files that it sends by content and not by path."""
        files = self.input.files_for(self.strategy)
        if not files:
            return self.input.digest
        return digest(by_content(self.input.value, self.input.files, files))

    @property
    def asks(self) -> list[str]:
        """What decides its reply: when any of it changes, the model is called again."""
        return [self.key, self.made_of]

    def value(self, scores: str) -> list[str]:
        """The item's value: when any of it changes, the recorded outcome is no longer used.

        `scores` is the study's `scored_by`. It holds names and digests only: a value of many parts
        takes ten times as long to write and compare.
        """
        return [self.key, self.made_of, scores]


@lru_cache(maxsize=1024)
def _arm_digest(model: ModelArm) -> str:
    return digest(model.plain())


def digest(value: object) -> str:
    """A short digest of a value's content."""
    text = (
        value
        if isinstance(value, str)
        else json.dumps(value, sort_keys=True, default=repr, separators=(",", ":"))
    )
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
