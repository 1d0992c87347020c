"""The tools of a workflow: a shell, models, agents' command lines, functions, samples, gates."""

from __future__ import annotations

import asyncio
import os
import tempfile
from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from abreast.agents.caller import AgentCaller
from abreast.agents.model import OneFolder
from abreast.agents.runner import AgentRunner, AgentUnknown
from abreast.assembly.names import open_model
from abreast.assembly.trees.workflow_agents import (
    find_integration,
    project_command,
    resolve_integration,
)
from abreast.core.errors import CallFailed, KeysMissing, ModelUnknown
from abreast.executors.commands import CommandMissing, CommandRefused, CommandRunner, Finished
from abreast.executors.names import open_commands
from abreast.executors.tasks import LocalExecutor, is_async
from abreast.jobs.workflow.tools import (
    NO_OPTIONS,
    AgentOptions,
    AgentRequest,
    AgentResult,
    CannotDo,
    CustomKind,
    GateQuestion,
    StepContext,
    TreeStart,
)
from abreast.models.conversation import make_conversation, read_messages
from abreast.models.lanes import LaneSettings, find_lanes
from abreast.models.media import MediaFile, read_files
from abreast.models.port import Message, Reply
from abreast.run.calls.model import Caller
from abreast.run.current import CurrentItem, current_item
from abreast.run.run import Run
from abreast.store.port import Store

if TYPE_CHECKING:
    from abreast.assembly.trees.workflow_trees import WorkflowTrees
    from abreast.jobs.sample.results import SampleResult
    from abreast.worktrees.results.item_trees import ItemTrees

ENTRY_POINT: Final = "abreast.steps"
"""The entry point by which packages register their own kinds of steps."""
MAX_OUTPUT: Final = 8 << 20
"""Bytes of a step's output that are kept, by default."""
MAX_ITEMS: Final = 100_000
"""Items that a fan-out may have, by default."""
_PROMPT: Final = "{prompt}"
# Bytes. The system bounds a single argument; a longer script is passed in a file.
_MAX_ARGUMENT_BYTES: Final = 100_000


ARGS: Final = "{args}"
"""The word of a runner's `argv` that `integration_args` and `integration_options` replace."""


@dataclass(frozen=True, slots=True)
class Runner:
    """An agent's command line: `{prompt}` and `{model}` are filled in.

    The words of `model` are left out where a step names no model.
    """

    argv: tuple[str, ...]
    model: tuple[str, ...] = ()
    stdin: tuple[str, ...] = ()
    """The command for a prompt that is too long for an argument and is passed on stdin.

    By default `argv` without the prompt.
    """
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words for each option, by its name.

    `{value}` is filled in. An option without `{value}` is a switch.
    """

    def arguments_and_stdin(
        self, prompt: str, model: str | None, more: AgentOptions = NO_OPTIONS
    ) -> tuple[list[str], bytes | None]:
        """Return the arguments for one prompt, and its stdin if the prompt is passed there."""
        text = prompt.encode("utf-8", "surrogateescape")
        if len(text) < _MAX_ARGUMENT_BYTES:
            return self.command(prompt, model, more), None
        argv = self.stdin or tuple(word for word in self.argv if word != _PROMPT)
        if any(_PROMPT in word for word in argv):
            raise CannotDo(
                f"the prompt has {len(text)} bytes, which is too long for an argument: let "
                f"{_PROMPT} stand alone in argv, or give stdin = [...] for prompts that are read "
                "from stdin"
            )
        return replace(self, argv=argv).command("", model, more), text

    def command(self, prompt: str, model: str | None, more: AgentOptions = NO_OPTIONS) -> list[str]:
        """Return the arguments for one prompt; `CannotDo` for an option with an invalid value."""
        if refusal := self.refuses(args=bool(more.args), options=more.options):
            raise CannotDo(f"it {refusal}")
        option_words = [
            word for name, value in more.options.items() for word in self._option(name, value)
        ]
        extra = [*more.args, *option_words]
        words: list[str] = []
        for word in (*self.argv, *(self.model if model else ())):
            filled = word.replace("{model}", model or "").replace("{prompt}", prompt)
            words += extra if word == ARGS else [filled]
        return words

    def refuses(self, *, args: bool, options: Mapping[str, Any]) -> str | None:
        """Return why it can't pass on arguments and options of a step; None if it can."""
        if unknown := [name for name in options if name not in self.options]:
            name = unknown[0]
            return f"has no words for the option {name!r}: add {name} = [...] to its options"
        if (args or options) and ARGS not in self.argv:
            what = "integration_args" if args else "integration_options"
            return f'would leave out {what}: put "{ARGS}" into its argv, where they are to stand'
        return None

    def _option(self, name: str, value: object) -> list[str]:
        words = self.options[name]
        if not any("{value}" in word for word in words):
            if not isinstance(value, bool):
                raise CannotDo(f"its option {name!r} is true or false, not {value!r}")
            return list(words) if value else []
        if not isinstance(value, (str, int, float)):
            raise CannotDo(f"its option {name!r} must be a text or a number, not {value!r}")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return [word.replace("{value}", text) for word in words]


def _environment(own: Mapping[str, str | None] | None) -> dict[str, str] | None:
    """Return the run's environment, changed by a step's own variables; a None removes one.

    None if the step has none: the run's environment is inherited.
    """
    return (
        None
        if not own
        else {name: value for name, value in {**os.environ, **own}.items() if value is not None}
    )


@dataclass(slots=True)
class Tools:
    """Settings and callbacks that a RunTools is made with."""

    cwd: str | None = None
    lanes: Mapping[str, LaneSettings] | None = None
    store: Store | None = None
    default_model: str | None = "local/smollm2"
    runners: Mapping[str, Runner] = field(default_factory=dict)
    kinds: Mapping[str, CustomKind] = field(default_factory=dict)
    find: Callable[[str], Callable[..., Any]] | None = None
    decide: Callable[[GateQuestion], Awaitable[str | None]] | None = None
    started: Callable[[CurrentItem, int], None] | None = None
    ended: Callable[[int], None] | None = None
    max_output: int = MAX_OUTPUT
    max_items: int = MAX_ITEMS
    executor: str = "local"
    """Where commands run: `local`, or `ray` on the nodes of a cluster."""
    agents: Mapping[str, AgentRunner] = field(default_factory=dict)
    """Agents for integrations that have no runner."""
    prepare_agent: Callable[[AgentCaller], None] = lambda _caller: None
    """Called with the caller of each agent, before it is asked anything."""


@dataclass(frozen=True, slots=True)
class _StepGroups:
    """Tells the callbacks of a workflow's tools of the processes of an agent."""

    tools: Tools

    def started(self, item: CurrentItem, group: int) -> None:
        if self.tools.started is not None:
            self.tools.started(item, group)

    def ended(self, group: int) -> None:
        if self.tools.ended is not None:
            self.tools.ended(group)


class RunTools:
    """The WorkflowTools of a real run: `async with RunTools(Tools(...)) as run_tools:`.

    It closes what it has opened.
    """

    def __init__(self, tools: Tools, models: Mapping[str, Caller] | None = None) -> None:
        """Open nothing yet. `models` are open already, and are not closed here."""
        self.default_model = tools.default_model
        self.max_output = tools.max_output
        self.max_items = tools.max_items
        self._tools = tools
        self._stack = AsyncExitStack()
        self._commands: CommandRunner | None = None
        self._models: dict[str, Caller] = dict(models or {})
        self._agents: dict[tuple[object, ...], AgentCaller] = {}
        self._trees: WorkflowTrees | None = None
        self._gate_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Enter the block; models and commands are opened at their first use."""
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *how: object) -> None:
        """Close the models, and end the commands that still run."""
        await self._stack.__aexit__(*how)  # type: ignore[arg-type]

    def holding(self) -> AbstractAsyncContextManager[None]:
        """What is held while a step does work of its own, which may call a provider; nothing."""
        return nullcontext()

    def use_trees(self, trees: ItemTrees) -> None:
        """Lend worktrees to the steps that ask for one, in a run that is open."""
        from abreast.assembly.trees.workflow_trees import WorkflowTrees

        self._trees = WorkflowTrees(trees)

    def _trees_here(self) -> WorkflowTrees:
        if self._trees is None:
            raise CannotDo("there are no worktrees here: run the file with `abreast run`")
        return self._trees

    async def shell(
        self,
        script: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        tree: TreeStart | None = None,
    ) -> AgentResult:
        """Run a script by `sh`; when this is cancelled, its whole process group is ended."""
        if tree is not None:
            return await self._trees_here().run(
                tree, cwd, lambda place: self.shell(script, cwd=place, env=env)
            )
        text = script.encode("utf-8", "surrogateescape")
        async with self.holding():
            try:
                if len(text) < _MAX_ARGUMENT_BYTES:
                    return await self._run(["sh", "-c", script], cwd=cwd, env=env)
                with tempfile.NamedTemporaryFile(prefix="abreast-", suffix=".sh") as file:
                    file.write(text)
                    file.flush()
                    return await self._run(["sh", file.name], cwd=cwd, env=env)
            except CommandRefused as error:
                raise CannotDo(str(error)) from None

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
        """Run the agent of that name with a prompt; None if there is no such runner."""
        tools, place = self._tools, self._directory(cwd)
        runner = tools.runners.get(integration)
        if runner is None:
            runner = tools.runners.get(resolve_integration(integration, place))
        prompt = project_command(prompt, integration, place)
        async with self.holding():
            if runner is None:
                found = find_integration(integration, tools.agents, place)
                if found is None:
                    return None
                if tree is not None and cwd is not None:
                    raise CannotDo("in a worktree an agent starts at its top: take out cwd")
                return await self._known_agent(found, prompt, model, more, place, env, tree)
            try:
                argv, stdin = runner.arguments_and_stdin(prompt, model, more)
                if tree is not None:
                    return await self._trees_here().run(
                        tree,
                        cwd,
                        lambda place: self._run(argv, stdin, keep=more.keep, cwd=place, env=env),
                    )
                return await self._run(argv, stdin, keep=more.keep, cwd=cwd, env=env)
            except (CannotDo, CommandMissing, CommandRefused) as error:
                raise CannotDo(f"the runner {integration!r} can't be started: {error}") from None

    async def _known_agent(  # noqa: PLR0917 - what a step says
        self,
        runner: AgentRunner,
        prompt: str,
        model: str | None,
        more: AgentOptions,
        place: str,
        env: Mapping[str, str] | None,
        tree: TreeStart | None = None,
    ) -> AgentResult:
        """Run an agent: its call is limited, charged and recorded as a model's is."""
        from abreast.assembly.trees.agents import ChosenAgent, agent_value, open_agent

        given = more.options.get("allow", ())
        allow = (given,) if isinstance(given, str) else tuple(map(str, given))
        if more.args or set(more.options) - {"allow"}:
            raise CannotDo(
                f"the agent {runner.name!r} takes the option allow alone: for other arguments "
                f"write its command line as [runners.{runner.name}] in abreast.toml"
            )
        if tree is not None:
            self._trees_here().start(tree)
        where = None if tree is not None else place
        key = (runner.name, model, allow, where, *sorted((env or {}).items()))
        if key not in self._agents:
            lanes = find_lanes(Path(place)) if self._tools.lanes is None else self._tools.lanes
            if self._commands is None:
                self._commands = await open_commands(self._stack, "local")
            try:
                caller = await open_agent(
                    self._stack,
                    ChosenAgent(runner, allow, model, lanes),
                    _StepGroups(self._tools),
                    self._commands,
                )
            except AgentUnknown as error:
                raise CannotDo(str(error)) from None
            # Without a word, its own settings say what it may do.
            caller.agent.allow = allow
            caller.agent.places = OneFolder(Path(place))
            caller.agent.env = dict(env or {})
            self._tools.prepare_agent(caller)
            if tree is not None:
                self._trees_here().place(caller)
            self._agents[key] = caller
        try:
            reply = await self._agents[key].ask(prompt)
        except CallFailed as error:
            return AgentResult(1, "", str(error))
        value = agent_value(reply)
        facts = {word: one for word, one in value.items() if word in {"agent", "tree"}}
        return AgentResult(0, reply.text, "", facts=facts)

    def _directory(self, cwd: str | None) -> str:
        return str(Path(self._tools.cwd or Path.cwd(), cwd or ""))

    async def _run(
        self,
        argv: list[str],
        stdin: bytes | None = None,
        *,
        keep: int | None = None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> AgentResult:
        if self._commands is None:
            self._commands = await open_commands(self._stack, self._tools.executor)
        tools, item, group = self._tools, current_item(), 0

        def started(pgid: int) -> None:
            nonlocal group
            group = pgid
            if tools.started is not None and item is not None:
                tools.started(item, pgid)

        directory = tools.cwd if cwd is None else str(Path(tools.cwd or Path.cwd(), cwd))
        try:
            finished = await self._commands.run(
                argv,
                stdin=stdin,
                cwd=directory,
                env=_environment(env),
                keep=self.max_output if keep is None else min(keep, self.max_output),
                started=started,
            )
        finally:
            if tools.ended is not None:
                tools.ended(group)
        return _result_of(finished)

    async def ask(self, question: AgentRequest) -> Reply:
        """Ask a model; each model is opened once."""
        name = question.model or self.default_model
        if name is None:
            raise CannotDo("no model is named: set model: on the step or the workflow")
        try:
            caller = await self._caller(name)
        except (ValueError, OSError, ModelUnknown, KeysMissing) as error:
            raise CannotDo(str(error)) from None
        turns = await asyncio.to_thread(self._turns, question)
        return await caller.ask(
            messages=turns,
            system=question.system,
            schema=question.schema,
            temperature=question.temperature,
            max_tokens=question.max_tokens,
            reasoning=question.reasoning,
            thinking_tokens=question.thinking_tokens,
            shared_prefix=question.shared_prefix,
        )

    def marks(self, paths: Sequence[str]) -> list[str]:
        """Return the marks of images and PDF files, by their content."""
        return [file.mark for file in self._read_files(paths)]

    def message_marks(self, messages: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the marks of the files in messages, by their content."""
        try:
            turns = read_messages(messages, self._tools.cwd or "")
        except (TypeError, ValueError) as error:
            raise CannotDo(str(error)) from None
        return [file.mark for turn in turns for file in turn.files]

    def _turns(self, question: AgentRequest) -> tuple[Message, ...]:
        """Return the conversation of a request; `CannotDo` for one that is wrong."""
        prompt = question.prompt if question.prompt or question.messages is None else None
        try:
            return make_conversation(
                prompt,
                question.messages,
                question.images,
                system=question.system,
                folder=self._tools.cwd or "",
            )
        except (TypeError, ValueError) as error:
            raise CannotDo(str(error)) from None

    def _read_files(self, paths: Sequence[str]) -> tuple[MediaFile, ...]:
        try:
            return read_files(paths, self._tools.cwd or "")
        except ValueError as error:
            raise CannotDo(str(error)) from None

    async def call(self, name: str, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a function returns anything
        """Call `module:function` with keywords."""
        async with self.holding():
            if self._tools.find is None:
                raise CannotDo(f"{name} can't be called here")
            function = self._tools.find(name)
            return await call_function(lambda _: function(**given), function)

    async def custom(
        self,
        kind: str,
        config: Mapping[str, Any],
        context: StepContext,
    ) -> Any:  # noqa: ANN401 - a registered kind returns anything
        """Run a step of a kind that a package has registered."""
        function = self._tools.kinds[kind]
        async with self.holding():
            return await call_function(lambda _: function(config, context), function)

    async def sample(self, run: Run, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Draw a sample beneath the current step."""
        result = await self.draw(run, facts)
        winner = result.winner
        return {
            "ok": result.ok,
            "text": result.text,
            "value": result.value,
            "counts": asdict(result.counts),
            "winner": winner
            and {"branch": winner.branch, "round": winner.round, "number": winner.number},
        }

    async def draw(self, run: Run, facts: Mapping[str, Any]) -> SampleResult:
        """Draw a sample and return its whole result."""
        from abreast.jobs.sample.spec import SampleSpec

        try:
            spec = SampleSpec.of({"model": self.default_model, **facts}, "sample")
            model = await self._caller(spec.model)
            judge = model if spec.judge is None else await self._caller(spec.judge)
            job = spec.job(
                model,
                judge,
                find=self._find_function,
                read=self._read_schema,
                folder=self._tools.cwd or "",
            )
        except (ValueError, TypeError, ModelUnknown, KeysMissing) as error:
            raise CannotDo(str(error)) from None
        draws = replace(job.draws, seed_path=self.seed_path(f"{run.path}/{job.name}"))
        return await replace(job, draws=draws).run(run)

    def seed_path(self, path: str) -> str | None:  # noqa: ARG002 - for tools that know another one
        """The path from which the seeds of a sample at `path` are derived; None: that path."""
        return None

    async def _caller(self, name: str) -> Caller:
        if name not in self._models:
            # Only requests with a shared prefix wait: those of prompts and samples that are warm.
            caller = open_model(name, lanes=self._tools.lanes, store=self._tools.store, warm=True)
            self._models[name] = await self._stack.enter_async_context(caller)
        return self._models[name]

    def _find_function(self, name: str) -> Callable[[Any], Any]:
        if self._tools.find is None:
            raise ValueError(f"{name} can't be called here")
        return self._tools.find(name)

    def _read_schema(self, path: str) -> Mapping[str, Any]:
        import json

        try:
            schema = json.loads(Path(self._tools.cwd or os.curdir, path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"the schema {path} can't be read: {error}") from None
        if not isinstance(schema, dict):
            raise ValueError(f"the schema {path} must be a mapping")
        return schema

    async def decide(self, question: GateQuestion) -> str | None:
        """Ask the user, one question at a time; None if there is no terminal."""
        if self._tools.decide is None:
            return None
        async with self._gate_lock:
            return await self._tools.decide(question)


async def call_function(
    call: Callable[[Any], Any],
    function: Callable[..., Any],
) -> Any:  # noqa: ANN401 - a function returns anything
    """Await `call` if `function` is a coroutine function; else run it in a thread."""
    if is_async(function):
        return await call(None)
    bound = LocalExecutor().bind(call, 1)
    try:
        return await bound.async_call(None)
    finally:
        await bound.close(0.0)


def _result_of(finished: Finished) -> AgentResult:
    stdout_cut = finished.stdout_bytes - len(finished.stdout)
    stderr_cut = finished.stderr_bytes - len(finished.stderr)
    stdout, stderr = _decode(finished.stdout, stdout_cut), _decode(finished.stderr, stderr_cut)
    return AgentResult(finished.exit_code, stdout, stderr, stdout_cut, stderr_cut)


def _decode(data: bytes, cut: int) -> str:
    """Decode UTF-8; a character that was cut in half at the end is dropped."""
    return getincrementaldecoder("utf-8")("replace").decode(data, final=not cut)


def find_function(name: str) -> Callable[..., Any]:
    """Return the function that `module:function` names; a CannotDo says what is missing."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise CannotDo(f"{name} can't be called: {error}") from error
    if not callable(found):
        raise CannotDo(f"{name} is not a function, but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def find_kinds() -> dict[str, CustomKind]:
    """Return the kinds of steps that packages have registered.

    A ValueError names one that can't be loaded.
    """
    found: dict[str, CustomKind] = {}
    for point in entry_points(group=ENTRY_POINT):
        try:
            loaded = point.load()
            kind = loaded() if isinstance(loaded, type) else loaded
        except Exception as error:
            raise ValueError(
                f"the step kind {point.name!r} ({point.value}) can't be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not callable(kind):
            raise ValueError(
                f"the step kind {point.name!r} ({point.value}) is not something that can be called"
            )
        found[point.name] = kind
    return found


def wrong_sample(facts: Mapping[str, Any]) -> str | None:
    """What is wrong with the sample of a workflow's step or a study's strategy; None if nothing."""
    from abreast.jobs.sample.spec import SampleSpec

    try:
        SampleSpec.of(facts)
    except (ValueError, TypeError) as error:
        return str(error).removeprefix("sample: ").removeprefix("sample.")
    return None
