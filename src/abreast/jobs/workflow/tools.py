"""What a workflow needs from outside: a shell, models, agents, somebody to ask.

Handed in, never imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from abreast.core.errors import AbreastError
from abreast.models.port import Reply
from abreast.run.run import Run


class CannotDo(AbreastError):
    """A step asks for something that isn't there: an agent, a model, a function.

    The sentence says what to do.
    """

    retryable = False


class AgentResult(NamedTuple):
    """What became of a command."""

    exit_code: int
    stdout: str
    stderr: str
    cut: int = 0
    """Bytes of stdout that were not kept."""
    stderr_cut: int = 0
    """Bytes of stderr that were not kept."""


class AgentOptions(NamedTuple):
    """What an agent's command line is told beside the prompt and the model."""

    args: tuple[str, ...] = ()
    options: Mapping[str, Any] = MappingProxyType({})
    keep: int | None = None
    """Bytes of stdout, and of stderr, that are kept; None: what any step may give out."""


NO_OPTIONS: Final = AgentOptions()


class AgentRequest(NamedTuple):
    """A question to a model."""

    prompt: str
    model: str | None
    system: str | None = None
    schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_tokens: int | None = None


class GateQuestion(NamedTuple):
    """What a gate wants to know."""

    step: str
    message: str
    options: tuple[str, ...]
    show_file: str | None = None


@dataclass(frozen=True, slots=True)
class StepContext:
    """What a kind of somebody's own is told beside its config."""

    step: str
    """The full id, such as `review:check:3`."""
    run_id: str
    inputs: Mapping[str, Any]
    item: Any = None
    attempt: int = 1
    seed: int = 0
    verdict: str | None = None
    """What a gate was told beforehand."""
    workflow_dir: str = ""
    """The directory of the workflow's file; empty if it is in none."""


@runtime_checkable
class CustomKind(Protocol):
    """A kind of step that somebody registers by the entry point `abreast.steps`.

    One object serves all steps of its type, and is called concurrently: it must keep nothing
    between calls. It gets the step's own keys, resolved, and gives its output, a mapping of JSON
    values. `CannotDo` fails the step; anything else that it raises is a fault, which ends the run
    and is raised there as it was.
    """

    def __call__(self, config: Mapping[str, Any], context: StepContext) -> Any:  # noqa: ANN401 - or awaitable
        """Do the step: plain functions run in a thread, `async def` on the loop."""


class WorkflowTools(Protocol):
    """The tools of one run of a workflow."""

    default_model: str | None
    max_output: int
    """Bytes that a step's output may have."""
    max_items: int
    """Items that a fan-out may have."""

    async def shell(
        self, script: str, *, cwd: str | None = None, env: Mapping[str, str | None] | None = None
    ) -> AgentResult:
        """Run a script by the shell; when this is cancelled, its whole process group ends.

        `env` is what its environment has beside the run's own, and by None what it has not.
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
    ) -> AgentResult | None:
        """Hand a prompt to an agent's command line; None if there is no such runner.

        `CannotDo` if the runner can't pass on the `more` that is asked of it: none of it is left out in silence.
        """

    async def ask(self, question: AgentRequest) -> Reply:
        """Ask a model; the errors beneath `CallFailed` are its own."""

    async def call(self, name: str, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a function's own
        """Call `module:function` with keywords; a plain one in a thread."""

    async def custom(self, kind: str, config: Mapping[str, Any], context: StepContext) -> Any:  # noqa: ANN401
        """Do a step of a kind that somebody registered."""

    async def sample(self, run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Draw a sample within `run`; its result in JSON's types."""

    async def decide(self, question: GateQuestion) -> str | None:
        """Ask a person; None if nobody is there."""


Find = Callable[[str], Callable[..., Any]]
