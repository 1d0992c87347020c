"""The port of a workflow's tools: a shell, models, agents, functions, gates.

The tools are passed in; the job imports no implementation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from abreast.core.errors import AbreastError
from abreast.models.port import Effort, Reply
from abreast.run.run import Run


class CannotDo(AbreastError):
    """A step needs an agent, a model or a function that does not exist here.

    The message says what to do.
    """

    retryable = False


class AgentResult(NamedTuple):
    """The result of a shell command or of an agent's command line."""

    exit_code: int
    stdout: str
    stderr: str
    cut: int = 0
    """Bytes of stdout that were not kept."""
    stderr_cut: int = 0
    """Bytes of stderr that were not kept."""
    facts: Mapping[str, Any] = MappingProxyType({})
    """What else is known: `agent` (session, steps, cost), `tree` (what it made of its worktree)."""


class TreeStart(NamedTuple):
    """The worktree in which a step works."""

    part: str
    """The name of what is made there, for the merge."""
    base: str | None = None
    """The snapshot that the part started from; None: the source tree as it is now."""
    after: str | None = None
    """The tree that the step before has left; None: the base."""


class AgentOptions(NamedTuple):
    """Options of an agent's command line beside the prompt and the model."""

    args: tuple[str, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    keep: int | None = None
    """Bytes of stdout, and of stderr, that are kept; None: as many as of any step's output."""


NO_OPTIONS: Final = AgentOptions()


class AgentRequest(NamedTuple):
    """A request to a model."""

    prompt: str
    model: str | None
    system: str | None = None
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    images: tuple[str, ...] = ()
    """Paths of images and PDF files, from the directory of the run."""
    reasoning: Effort | None = None
    thinking_tokens: int | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    """The turns before the prompt, or all turns where the prompt is empty."""
    shared_prefix: int | None = None
    """So many characters of the prompt begin those of other items too, and are to be cached."""


class GateQuestion(NamedTuple):
    """The question of a gate."""

    step: str
    message: str
    options: tuple[str, ...]
    show_file: str | None = None


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a step of your own type gets beside its config: where it is, and what it may read."""

    step: str
    """The full id, such as `review:check:3`."""
    run_id: str
    """The run's id in its store."""
    inputs: Mapping[str, Any]
    """The inputs of the workflow."""
    item: Any = None
    """The item of the fan-out around it; None outside of one."""
    attempt: int = 1
    """The number of this attempt, from 1."""
    seed: int = 0
    """The step's own seed."""
    verdict: str | None = None
    """The answer to a gate that was given beforehand."""
    workflow_dir: str = ""
    """The directory of the workflow's file; empty if it is in none."""


@runtime_checkable
class CustomKind(Protocol):
    """A kind of step that a package registers by the entry point `abreast.steps`.

    One object serves all steps of its type, and is called concurrently: it must keep nothing
    between calls. It gets the step's own keys, resolved, and returns its output, a mapping of JSON
    values. `CannotDo` fails the step; any other exception is a fault, which ends the run and is
    raised there unchanged.
    """

    def __call__(self, config: Mapping[str, Any], context: StepContext) -> Any:  # noqa: ANN401 - or awaitable
        """Run the step: plain functions run in a thread, `async def` on the loop."""


class WorkflowTools(Protocol):
    """The tools of one run of a workflow."""

    default_model: str | None
    max_output: int
    """Bytes that a step's output may have."""
    max_items: int
    """Items that a fan-out may have."""

    async def shell(
        self,
        script: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        tree: TreeStart | None = None,
    ) -> AgentResult:
        """Run a script by the shell; when this is cancelled, its whole process group is ended.

        `env` is added to the run's own environment; a None removes a variable. With `tree` it runs
        in the worktree that the step holds.
        """

    async def agent(
        self,
        integration: str,
        prompt: str,
        model: str | None,
        more: AgentOptions = NO_OPTIONS,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        tree: TreeStart | None = None,
    ) -> AgentResult | None:
        """Run an agent's command line with a prompt; None if there is no such runner.

        `CannotDo` if the runner can't pass on all of `more`: no option is dropped silently.
        """

    def marks(self, paths: Sequence[str]) -> list[str]:
        """Return what is recorded of images and PDF files: type, size and digest.

        `CannotDo` for one that can't be sent.
        """

    def message_marks(self, messages: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the same of the files in messages; `CannotDo` also for messages that are wrong."""

    async def ask(self, question: AgentRequest) -> Reply:
        """Ask a model; raises its errors, which are subclasses of `CallFailed`."""

    async def call(self, name: str, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a function returns anything
        """Call `module:function` with keywords; a plain function runs in a thread."""

    async def custom(
        self,
        kind: str,
        config: Mapping[str, Any],
        context: StepContext,
    ) -> Any:  # noqa: ANN401 - a registered kind returns anything
        """Run a step of a kind that a package has registered."""

    async def sample(self, run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Draw a sample within `run`; returns its result in JSON's types."""

    async def decide(self, question: GateQuestion) -> str | None:
        """Ask the user; None if no user can answer."""
