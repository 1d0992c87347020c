"""The typed objects of a workflow file that has been read and checked, each with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from abreast.jobs.files.expressions import ExpressionText
from abreast.jobs.workflow.shell.script import Script
from abreast.models.port import Effort

Effect: TypeAlias = Literal["pure", "idempotent", "once"]
OnReject: TypeAlias = Literal["abort", "skip", "retry"]

SHELL_TIMEOUT: Final = 300.0
"""Seconds that a shell or prompt step may take, unless it says otherwise."""
MAX_ITERATIONS: Final = 10
"""Rounds of a loop that names no number."""

Value: TypeAlias = (
    "ExpressionText | str | int | float | bool | list[Value] | dict[str, Value] | None"
)
"""A value of the file: a text with a `{{ }}` is an ExpressionText, all else is as written."""


@dataclass(frozen=True, slots=True)
class Common:
    """The keys that every step may have."""

    id: str
    type: str
    line: int
    continue_on_error: bool = False
    needs: tuple[str, ...] | None = None
    """None: it runs after the step before it."""
    when: ExpressionText | bool = True
    """`if`: whether the step runs; else it is skipped."""
    retry: int = 0
    retry_delay: float | None = None
    """Seconds before each further attempt; None: a backoff that grows."""
    env: dict[str, Value] = field(default_factory=dict)
    """Of steps that start a process: variables added to the run's environment."""
    cwd: ExpressionText | None = None
    worktree: bool = False
    """Of steps that start a process, and of fan-outs: whether each item works in a copy of its own.
    """
    timeout: float | None = None
    budget: str | None = None
    lane: str | None = None
    effect: Effect = "pure"
    output_schema: Mapping[str, Any] | None = None
    input: Value = None
    """As it is written in the file, for `steps.<id>.input`."""


@dataclass(frozen=True, slots=True)
class WithCommon:
    """Any step."""

    common: Common


@dataclass(frozen=True, slots=True)
class Shell(WithCommon):
    """`run`: a script for the shell; values that are filled in stay data, not code."""

    run: Script
    json: bool = False


@dataclass(frozen=True, slots=True)
class Prompt(WithCommon):
    """A prompt for a model, or for an agent's command line where `integration` names one."""

    prompt: ExpressionText
    integration: ExpressionText | None = None
    model: ExpressionText | None = None
    system: ExpressionText | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    images: Value = None
    """Paths of images and PDF files, or mappings `{image: path}`: one, or a list."""
    capture: bool = False
    capture_max_bytes: int | None = None
    """Bytes of the reply that are kept, or of stdout and stderr each.

    None: as many as of any step's output; -1: all.
    """
    reasoning: Effort | None = None
    thinking_tokens: int | None = None
    messages: Value = None
    """The turns before the prompt, or all turns where the prompt is empty."""
    allow: tuple[str, ...] = ()
    """What an agent may do; empty: what its own settings say, and in a worktree to edit."""
    warm: bool = False
    """Whether one prompt of a fan-out goes ahead, so that the others find its beginning cached."""


@dataclass(frozen=True, slots=True)
class Command(WithCommon):
    """A slash command for an agent's command line."""

    command: str
    integration: ExpressionText | None = None
    model: ExpressionText | None = None
    options: Value = None
    integration_args: tuple[Value, ...] = ()
    integration_options: Value = None
    capture: bool = False
    capture_max_bytes: int | None = None
    """Bytes of stdout and of stderr that are kept.

    None: as many as of any step's output; -1: all.
    """


@dataclass(frozen=True, slots=True)
class Python(WithCommon):
    """A call of a function, `module:function`, with the keywords in `with`."""

    call: str
    given: Value = None


@dataclass(frozen=True, slots=True)
class GateStep(WithCommon):
    """A question that a user decides."""

    message: Value
    options: tuple[str, ...] = ("approve", "reject")
    on_reject: OnReject = "abort"
    show_file: ExpressionText | None = None
    verdict_input: str | None = None


@dataclass(frozen=True, slots=True)
class If(WithCommon):
    """Two lists of steps, of which a condition chooses one."""

    condition: ExpressionText | bool
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Switch(WithCommon):
    """Lists of steps, of which an expression's value names one."""

    expression: Value
    cases: tuple[tuple[str, tuple[Step, ...]], ...]
    default: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop(WithCommon):
    """`while` and `do-while`."""

    condition: ExpressionText | bool
    steps: tuple[Step, ...]
    max_iterations: int = MAX_ITERATIONS
    at_least_once: bool = False


@dataclass(frozen=True, slots=True)
class Canary:
    """The first `items` run alone.

    Unless `min_success` of them (a part of 1) succeed, no other item runs.
    """

    items: int
    min_success: float


@dataclass(frozen=True, slots=True)
class FanOut(WithCommon):
    """The same steps for each item of a list, side by side."""

    items: Value
    steps: tuple[Step, ...]
    max_concurrency: Value = 1
    min_success: float | None = None
    """A count, or a part below 1."""
    max_failures: int | None = None
    canary: Canary | None = None
    key: ExpressionText | None = None
    """The key of an item, by which it is found again when the list has changed."""
    template: Mapping[str, Any] | None = None
    """`step` as it is written in the file, for `steps.<id>.output.step_template`.

    None where it has `steps`.
    """


@dataclass(frozen=True, slots=True)
class FanIn(WithCommon):
    """Outputs of earlier steps, collected in one."""

    wait_for: tuple[str, ...]
    output: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlotStep(WithCommon):
    """A named place for a step of the user's own; it is empty, so it is skipped."""

    name: str


@dataclass(frozen=True, slots=True)
class Sample(WithCommon):
    """A sample: the keys of a sample's job file, with `{{ }}` in its texts."""

    facts: dict[str, Value]


@dataclass(frozen=True, slots=True)
class CallStep(WithCommon):
    """Another workflow's file as a step."""

    file: str
    workflow: Workflow
    given: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Custom(WithCommon):
    """A kind that a package has registered; its config is resolved before it is called."""

    config: dict[str, Value]


Action: TypeAlias = Shell | Prompt | Command | Python | GateStep | Sample | Custom
Step: TypeAlias = Action | If | Switch | Loop | FanOut | FanIn | CallStep | SlotStep
ACTIONS: Final = (Shell, Prompt, Command, Python, GateStep, Sample, Custom)


@dataclass(frozen=True, slots=True)
class WorkflowInput:
    """One of a workflow's inputs."""

    name: str
    line: int
    type: Literal["string", "number", "boolean"] = "string"
    required: bool = False
    has_default: bool = False
    default: Any = None
    enum: tuple[Any, ...] | None = None
    prompt: str | None = None
    """What to ask on a terminal."""
    secret: bool = False
    """Whether its value is never stored nor shown."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A whole file."""

    id: str
    file: str
    text: str
    steps: tuple[Step, ...]
    inputs: tuple[WorkflowInput, ...] = ()
    outputs: dict[str, Value] = field(default_factory=dict)
    name: str = ""
    version: str = ""
    author: str = ""
    description: str = ""
    integration: ExpressionText | None = None
    model: ExpressionText | None = None
    options: Value = None
    directory: str = ""
    """The directory of its file, for `context.workflow_dir`; empty if it is in none."""
    warnings: tuple[tuple[int, str], ...] = ()
    """Line numbers, each with a sentence on what is probably not meant there."""
