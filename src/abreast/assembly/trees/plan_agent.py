"""An agent as the work of a subplan, in the worktree that its plan has prepared."""

import asyncio
from collections.abc import Mapping
from typing import Any

from abreast.agents.caller import AgentCaller
from abreast.agents.model import agent_facts
from abreast.agents.process import AgentPlace
from abreast.agents.report import AgentReport
from abreast.agents.runner import Permission
from abreast.assembly.process_groups import RUN_VARIABLE
from abreast.assembly.trees.agents import TREE_FACTS
from abreast.jobs.plan.work.assignment import Assignment
from abreast.worktrees.merge.apply import put
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.results.item_trees import WORKTREES, current
from abreast.worktrees.slot import Slot

_MAX_FILES = 200  # named in the prompt


class AgentSubplan:
    """Gives an agent the plan's prompt, with the files of the subplan and what is asked of it."""

    def __init__(
        self,
        caller: AgentCaller,
        snapshots: Snapshots,
        run: str,
        allow: tuple[Permission, ...] = (),
    ) -> None:
        self._caller = caller
        self._places = PreparedPlaces(snapshots)
        caller.agent.places = self._places
        caller.cut_off = lambda _path: False  # a subplan begins anew, from where its plan says
        caller.agent.allow = allow or ("edit",)
        caller.agent.env = {RUN_VARIABLE: run}

    async def __call__(self, assignment: Assignment) -> dict[str, Any]:
        """Run the agent; its tree is restored if its call was recorded by an earlier driver."""
        reply = await self._caller.ask(subplan_prompt(assignment))
        facts = agent_facts(reply)
        await self._places.restore(str(facts.get("result") or ""))
        about = {name: value for name, value in facts.items() if name not in TREE_FACTS}
        return {"text": reply.text, "agent": about}


class PreparedPlaces:
    """The worktrees of subplans: prepared and kept by the plan itself."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._entered: set[tuple[str, int]] = set()

    async def enter(self, *, fresh: bool) -> AgentPlace:
        """The worktree as it is."""
        del fresh
        item, slot = current(), _slot()
        self._entered.add((item.path, item.attempt))
        return AgentPlace(slot.root, slot.scratch)

    async def leave(self, report: AgentReport) -> Mapping[str, Any]:
        """The tree, recorded with the reply: a kill before the subplan is recorded loses none."""
        del report
        slot = _slot()
        tree = await asyncio.to_thread(self._snapshots.take, slot.root, git_dir=slot.git_dir)
        return {"result": tree}

    def fail(self, *, goes_on: bool) -> Mapping[str, Any]:
        """The plan keeps it."""
        del goes_on
        return {}

    async def restore(self, tree: str) -> None:
        """Make the worktree what a recorded call has left, unless the call was made here."""
        item = current()
        if tree and (item.path, item.attempt) not in self._entered:
            await asyncio.to_thread(put, self._snapshots, _slot().root, tree)


def _slot() -> Slot:
    found = current().held.get(WORKTREES)
    if not isinstance(found, Slot):
        raise TypeError(f"{current().path} works in a worktree, and holds none")
    return found


def subplan_prompt(part: Assignment) -> str:
    """What an agent is told of its part."""
    named = [f"- {name}" for name in part.files[:_MAX_FILES]]
    more = len(part.files) - len(named)
    named += [f"- and {more} more, all in {part.scope}"] if more > 0 else []
    texts = [
        part.instruction,
        part.instructions,
        f"Work only on your part of the repository, {part.scope}. Its files are:\n"
        + "\n".join(named)
        + "\nOthers work on the other files at the same time.",
        part.request_text,
    ]
    return "\n\n".join(text for text in texts if text)
