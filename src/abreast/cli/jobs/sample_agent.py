"""A sample whose draws are made by an agent, each branch in a worktree of its own."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from abreast.agents.caller import AgentCaller
from abreast.assembly.process_groups import RUN_VARIABLE, ProcessGroups
from abreast.assembly.trees.agents import ChosenAgent, held_lane, open_agent, place_agent
from abreast.assembly.trees.checks import CheckTools, CommandCheck
from abreast.assembly.trees.opened_trees import OpenedTrees, open_trees
from abreast.cli.errors import DONE, UsageError, one_line, tell
from abreast.cli.jobs.agent_options import check_installed, find_chosen
from abreast.cli.terminal.tables import say_facts, say_json
from abreast.executors.commands import CommandRunner
from abreast.executors.names import open_commands
from abreast.jobs.plan.review.tree_manifest import TREES
from abreast.jobs.plan.review.tree_runs import TREE_CHOSEN
from abreast.jobs.plan.work.commands import Processes
from abreast.jobs.sample.arguments import SampleJob
from abreast.jobs.sample.results import SampleResult
from abreast.jobs.sample.spec import SampleSpec
from abreast.limits.budget import Budget
from abreast.limits.pool import Pool
from abreast.models.lanes import LaneSettings
from abreast.models.port import Request
from abreast.run.run import Run
from abreast.store.port import Store
from abreast.worktrees.results.item_trees import WORKTREES


class SampleAgent:
    """The agent of one sample, the trees of its branches, and commands as checks."""

    _opened: OpenedTrees
    _caller: AgentCaller
    _commands: CommandRunner

    def __init__(self, spec: SampleSpec, cwd: str, groups: ProcessGroups) -> None:
        self._spec, self._cwd, self._groups = spec, cwd, groups
        self._tools = CheckTools()

    def chosen(self) -> ChosenAgent:
        """The agent; raises `UsageError` if there is none of that name."""
        spec = self._spec
        return find_chosen(spec.agent or "", spec.allow, spec.model or None, self._cwd)

    def check(self) -> None:
        """Raise `UsageError` for what is visible before anything starts."""
        runner, spec = self.chosen().runner, self._spec
        check_installed(runner, self._cwd)
        if spec.judge is None and any(text.startswith("judge:") for text in spec.checks):
            raise UsageError("--judge: name the model that judges what the agent says")

    def command_check(self, command: str) -> CommandCheck:
        """A command that must succeed in the tree of a draw."""
        return CommandCheck.of(command, self._tools)

    def print_dry_run(self, *, as_json: bool) -> int:
        """Print how many agents may run; what they cost is not known."""
        spec, runner = self._spec, self.chosen().runner
        facts = {
            "agent": runner.name,
            "branches": spec.breadth,
            "rounds": spec.depth,
            "agents at worst": spec.breadth * spec.depth,
            "cost": "unknown",
        }
        say_json({name.replace(" ", "_"): value for name, value in facts.items()}) if (
            as_json
        ) else say_facts(facts)
        return DONE

    async def open(
        self,
        stack: AsyncExitStack,
        store: Store | None,
        resumed_run: str | None,
        lanes: Mapping[str, LaneSettings],
        *,
        quiet: bool,
    ) -> tuple[AgentCaller, dict[str, Any]]:
        """Make a worktree for each branch; return the caller, and options of the run."""
        spec = self._spec
        self._opened = await open_trees(
            stack,
            self._cwd,
            spec.breadth,
            (lambda _text: None) if quiet else lambda text: tell(one_line(text)),
            store=store,
            resumed_run=resumed_run,
        )
        self._commands = await open_commands(stack, "local")
        self._caller = caller = await open_agent(
            stack, replace(self.chosen(), lanes=lanes), self._groups, self._commands
        )
        caller.reserve(Request(()), (Budget.parse(spec.budget),) if spec.budget else ())
        held = {WORKTREES: Pool(self._opened.pool.slots), **held_lane(caller)}
        manifest = {TREES: {"path": self._cwd, "task": spec.prompt or ""}}
        return caller, {"lanes": held, "manifest": manifest}

    def hold_trees(self, job: SampleJob, run: str) -> SampleJob:
        """The job with a worktree for each branch, in a run that is open."""
        trees = self._opened.of_run(run, lambda item: f"branch-{item.index}")
        place_agent(self._caller, run, trees=trees, allow=self._spec.allow)
        self._tools.trees = trees
        self._tools.processes = Processes(
            self._commands, self._groups.started, self._groups.ended, {RUN_VARIABLE: run}
        )
        return replace(job, draws=replace(job.draws, worktrees=WORKTREES))

    def choose(self, run: Run, result: SampleResult[Any]) -> None:
        """Record the tree of the winner, which `abreast plan apply` merges."""
        winner = result.winner
        if winner is None or not result.ok or not winner.work or "result" not in winner.work:
            return
        run.note(
            TREE_CHOSEN,
            {
                "part": f"branch-{winner.branch}",
                "base": str(winner.work["base"]),
                "result": str(winner.work["result"]),
            },
        )
