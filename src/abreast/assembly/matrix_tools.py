"""The tools that a matrix is handed: counted models, functions, samples and workflows as strategies."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from abreast.assembly.names import open_model
from abreast.assembly.workflow_tools import RunTools, Tools, called, find_kinds
from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.errors import NotRecorded
from abreast.executors.tasks import is_async
from abreast.jobs.matrix.call_notes import LaneCount
from abreast.jobs.matrix.own_work import holding_place
from abreast.jobs.matrix.rows import SubResult
from abreast.jobs.matrix.tools import Asked, AskedFromThread, Counted
from abreast.models.port import Hear, Reply, Request
from abreast.run.calls.model import Caller
from abreast.run.run import Run

if TYPE_CHECKING:
    from abreast.jobs.workflow.spec import Workflow

# What workflows need is imported where a strategy is one: it is a third of the time that importing
# takes.


class BenchKit:
    """Real tools, to be used as `async with BenchKit(Tools(...)) as bench:`."""

    def __init__(
        self, tools: Tools, directory: Path, clock: Clock = SYSTEM_CLOCK, *, offline: bool = False
    ) -> None:
        """Nothing is opened before it is needed.

        Workflows are in `directory`. `offline`, cells ask no model.
        """
        self.clock = clock
        self.lanes: dict[str, LaneCount] = {}
        self._tools = tools
        self._directory = directory
        self._stack = AsyncExitStack()
        self._callers: dict[tuple[str, bool], Caller] = {}
        self._kits: dict[str, RunTools] = {}
        self._workflows: dict[str, Workflow] = {}
        self._opening = asyncio.Lock()
        self._offline = offline

    async def __aenter__(self) -> Self:
        """Open it."""
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *how: object) -> None:
        """Close all models."""
        await self._stack.__aexit__(*how)  # type: ignore[arg-type]

    async def caller(self, name: str) -> Caller:
        """The model of that name, for cells; all of a lane are counted together."""
        return await self._opened(name, silent=self._offline)

    async def judge(self, name: str) -> Caller:
        """The model of that name, for scores; where cells may ask, it is the same as theirs."""
        return await self._opened(name, silent=False)

    async def _opened(self, name: str, *, silent: bool) -> Caller:
        async with self._opening:
            if (name, silent) not in self._callers:
                caller = open_model(name, lanes=self._tools.lanes, store=self._tools.store)
                count = self.lanes.setdefault(caller.lane.name, LaneCount())
                caller.model = _Silent(name) if silent else Counted(caller.model, count, self.clock)
                self._callers[name, silent] = await self._stack.enter_async_context(caller)
        return self._callers[name, silent]

    async def call(self, name: str, *given: Any) -> Any:  # noqa: ANN401 - a function's own
        """Call `module:function`; a plain one in a thread."""
        if self._tools.find is None:
            raise ValueError(f"{name} can't be called here")
        function = self._tools.find(name)
        if not is_async(function):
            loop = asyncio.get_running_loop()
            given = tuple(
                AskedFromThread(one, loop) if isinstance(one, Asked) else one for one in given
            )
        return await called(lambda _: function(*given), function)

    async def sample(self, run: Run, facts: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Draw a sample from the arm's model."""
        kit = await self._kit(caller)
        result = await kit.draw(run, {**facts, "model": caller.name})
        # Those after the winner, or else after an error for all, may have been cut off or not, as
        # timing would have it: they are in no row.
        ordered = sorted(result.attempts, key=lambda attempt: (attempt.round, attempt.branch))
        last = result.winner or next((one for one in ordered if one.concerns == "sample"), None)
        counted = [
            one
            for one in ordered
            if last is None or (one.round, one.branch) <= (last.round, last.branch)
        ]
        steps = [
            SubResult(
                f"branch {one.branch} round {one.round}: {one.state}",
                str(facts.get("prompt", "")),
                one.text,
                one.usage.input_tokens,
                one.usage.output_tokens,
                one.usage.usd,
                one.seconds,
            )
            for one in counted
        ]
        return {"ok": result.ok, "text": result.text, "value": result.value, "steps": steps}

    async def workflow(
        self, run: Run, file: str, inputs: Mapping[str, Any], caller: Caller
    ) -> dict[str, Any]:
        """Run a workflow with the arm's model as the one that prompts go to."""
        from abreast.jobs.workflow.inputs import resolve_inputs
        from abreast.jobs.workflow.job import Flow

        flow = self._workflow(file)
        given = {
            one.name: inputs[one.name]
            if one.type != "string" or isinstance(inputs[one.name], str)
            else json.dumps(inputs[one.name])
            for one in flow.inputs
            if one.name in inputs
        }
        found = await Flow(flow, await self._kit(caller)).run(
            run, resolve_inputs(flow.inputs, given)
        )
        values = list(found.outputs.values())
        last = list(found.steps.values())[-1].output if found.steps else {}
        value = values[0] if len(values) == 1 else found.outputs or None
        text = value if isinstance(value, str) else last.get("text") or last.get("stdout") or ""
        steps = [
            SubResult(name, str(record.output.get("prompt") or ""), str(said))
            for name, record in found.steps.items()
            if (said := record.output.get("text", record.output.get("stdout"))) is not None
        ]
        plain = value is None or isinstance(value, str)
        return {
            "ok": found.ok,
            "error": found.error,
            "value": None if plain else value,
            "steps": steps,
            "text": text if plain else json.dumps(value),
        }

    def _workflow(self, file: str) -> Workflow:
        from abreast.jobs.workflow.load.load import load

        if file not in self._workflows:
            path = self._directory / file
            self._workflows[file] = load(
                path.read_text("utf-8"), file, directory=path.parent, kinds=find_kinds()
            )
        return self._workflows[file]

    async def _kit(self, caller: Caller) -> RunTools:
        if caller.name not in self._kits:
            tools = replace(self._tools, default_model=caller.name)
            kit = CellKit(tools, caller, self.clock)
            self._kits[caller.name] = await self._stack.enter_async_context(kit)
        return self._kits[caller.name]


class CellKit(RunTools):
    """The tools of workflows and samples that are strategies: what may ask the provider by itself holds a place."""

    def __init__(self, tools: Tools, caller: Caller, clock: Clock) -> None:
        """On the lane of this caller, which prompts go to, too."""
        super().__init__(tools, {caller.name: caller})
        self._held_by = caller
        self._clock = clock

    async def shell(self, *given: Any, **more: Any) -> Any:  # noqa: ANN401 - as the toolkit says
        """Run a script, which may call a model's API or an agent."""
        async with holding_place(self._held_by, self._clock):
            return await super().shell(*given, **more)

    async def agent(self, *given: Any, **more: Any) -> Any:  # noqa: ANN401 - as the toolkit says
        """Hand a prompt to an agent."""
        async with holding_place(self._held_by, self._clock):
            return await super().agent(*given, **more)

    async def call(self, *given: Any, **more: Any) -> Any:  # noqa: ANN401 - as the toolkit says
        """Call a function, which may have a client of its own."""
        async with holding_place(self._held_by, self._clock):
            return await super().call(*given, **more)

    async def custom(self, *given: Any, **more: Any) -> Any:  # noqa: ANN401 - as the toolkit says
        """Do a step of a registered kind."""
        async with holding_place(self._held_by, self._clock):
            return await super().custom(*given, **more)


class _Silent:
    """A model that isn't asked."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: Request, hear: Hear | None = None) -> Reply:  # noqa: ARG002 - a model's shape
        raise NotRecorded(f"{self.name} was not asked this before, and now nobody is asked")

    async def close(self) -> None:
        """Nothing is open."""


def source_of(find: Callable[[str], Callable[..., Any]]) -> Callable[[str], str]:
    """What decides what a function does: the text of its module."""

    def read(call: str) -> str:
        function: Any = find(call)
        try:
            return inspect.getsource(inspect.getmodule(function) or function)
        except (OSError, TypeError):
            return repr(getattr(function, "__code__", function))

    return read
