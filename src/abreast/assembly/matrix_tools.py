"""The tools of a matrix: counted models, functions, samples and workflows as strategies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from abreast.assembly.functions import module_text
from abreast.assembly.names import open_model
from abreast.assembly.workflow_tools import RunTools, Tools, call_function, find_kinds
from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.errors import NotRecorded
from abreast.core.item import escape
from abreast.executors.tasks import is_async
from abreast.jobs.matrix.call_notes import LaneCount
from abreast.jobs.matrix.rows import SubResult
from abreast.jobs.matrix.tools import (
    BlockingStrategyModel,
    CountingModel,
    StrategyModel,
    holding_place,
)
from abreast.models.port import OnText, Reply, Request
from abreast.run.calls.model import Caller
from abreast.run.run import Run

if TYPE_CHECKING:
    from abreast.jobs.workflow.spec import Workflow

# Workflow modules are imported only where a strategy is a workflow: they take a third of the import
# time.


class RunMatrixTools:
    """The tools of a real run: `async with RunMatrixTools(Tools(...), directory) as tools:`."""

    def __init__(
        self,
        tools: Tools,
        directory: Path,
        clock: Clock = SYSTEM_CLOCK,
        *,
        offline: bool = False,
        opened: Mapping[str, Caller] | None = None,
        warm: bool = False,
    ) -> None:
        """Open nothing yet. Workflow files are in `directory`; if `offline`, cells ask no model.

        `opened` are models that are open already, by name; they stay open at the end. With `warm`,
        samples and the prompts of workflows send one ahead.
        """
        self.clock = clock
        self.lanes: dict[str, LaneCount] = {}
        self._tools = tools
        self._directory = directory
        self._stack = AsyncExitStack()
        self._callers: dict[tuple[str, bool], Caller] = {}
        self._run_tools: dict[str, RunTools] = {}
        self._workflows: dict[str, Workflow] = {}
        self._open_lock = asyncio.Lock()
        self._offline = offline
        self._warm = warm
        self._opened = dict(opened or {})

    async def __aenter__(self) -> Self:
        """Enter the block; models are opened at their first use."""
        await self._stack.__aenter__()
        return self

    async def __aexit__(self, *how: object) -> None:
        await self._stack.__aexit__(*how)  # type: ignore[arg-type]

    async def caller(self, name: str) -> Caller:
        """Return the model of that name, for cells; all models of a lane are counted together."""
        return await self._open(name, silent=self._offline)

    async def judge(self, name: str) -> Caller:
        """Return the model of that name, for scores; unless offline, the same as the cells'."""
        return await self._open(name, silent=False)

    async def _open(self, name: str, *, silent: bool) -> Caller:
        async with self._open_lock:
            if (name, silent) not in self._callers:
                own = self._opened.get(name)
                caller = own or open_model(name, lanes=self._tools.lanes, store=self._tools.store)
                # Only requests with a shared prefix wait, which strategies have if they are warm.
                caller = caller.warmed()
                count = self.lanes.setdefault(caller.lane.name, LaneCount())
                counted = (
                    caller.direct.with_model(_OfflineModel(name))
                    if silent
                    else caller.with_model(CountingModel(caller.model, count, self.clock))
                )
                if own is None:
                    await self._stack.enter_async_context(counted)
                self._callers[name, silent] = counted
        return self._callers[name, silent]

    async def call(self, name: str, *given: Any) -> Any:  # noqa: ANN401 - a function's own types
        """Call `module:function`; a plain function runs in a thread."""
        if self._tools.find is None:
            raise ValueError(f"{name} can't be called here")
        function = self._tools.find(name)
        if not is_async(function):
            loop = asyncio.get_running_loop()
            given = tuple(
                BlockingStrategyModel(one, loop) if isinstance(one, StrategyModel) else one
                for one in given
            )
        return await call_function(lambda _: function(*given), function)

    async def sample(self, run: Run, facts: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Draw a sample from the arm's model."""
        tools = await self._tools_for(caller)
        warm = bool(facts.get("warm", self._warm))
        result = await tools.draw(run, {**facts, "model": caller.name, "warm": warm})
        # Whether attempts after the winner, or after an error of the whole sample, have ended
        # depends on timing: they are left out of the rows.
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
        """Run a workflow; its prompts go to the arm's model."""
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
        found = await Flow(flow, await self._tools_for(caller), warm=self._warm).run(
            run, resolve_inputs(flow.inputs, given)
        )
        values = list(found.outputs.values())
        last = list(found.steps.values())[-1].output if found.steps else {}
        value = values[0] if len(values) == 1 else found.outputs or None
        text = value if isinstance(value, str) else last.get("text") or last.get("stdout") or ""
        steps = [
            SubResult(name, str(record.output.get("prompt") or ""), str(reply))
            for name, record in found.steps.items()
            if (reply := record.output.get("text", record.output.get("stdout"))) is not None
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

    async def _tools_for(self, caller: Caller) -> RunTools:
        if caller.name not in self._run_tools:
            cell_tools = CellTools(
                replace(self._tools, default_model=caller.name), caller, self.clock
            )
            self._run_tools[caller.name] = await self._stack.enter_async_context(cell_tools)
        return self._run_tools[caller.name]


class CellTools(RunTools):
    """The tools of workflows and samples that are strategies.

    Commands and functions, which may call the provider by themselves, hold a place on its lane.
    """

    def __init__(self, tools: Tools, caller: Caller, clock: Clock) -> None:
        """Prompts go to `caller`; its lane is the one on which places are held."""
        super().__init__(tools, {caller.name: caller})
        self._lane_caller = caller
        self._clock = clock

    def seed_path(self, path: str) -> str | None:
        """The path that a replayed study had: its second part is the lane of the model."""
        recorded = self._lane_caller.replays
        if recorded is None:
            return None
        root, _, *rest = path.split("/")
        return "/".join((root, escape(recorded.partition("/")[0]), *rest))

    def holding(self) -> AbstractAsyncContextManager[None]:
        """A place on the caller's lane: scripts, agents and functions may be its clients too."""
        return holding_place(self._lane_caller, self._clock)


class _OfflineModel:
    """A model for offline runs: every request that was not recorded raises NotRecorded."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:  # noqa: ARG002 - the Model protocol
        raise NotRecorded(f"{self.name} was not asked this before, and now no model is asked")

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def source_of(find: Callable[[str], Callable[..., Any]]) -> Callable[[str], str]:
    """Return a function that reads the source of a function's module, by `module:function`.

    A change of that text changes what the function does.
    """
    return lambda call: module_text(find(call))
