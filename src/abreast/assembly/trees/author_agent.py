"""A coding agent as the author of candidates: each request is a step in a tree of its own."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from abreast.agents.caller import AgentCaller
from abreast.agents.model import agent_facts
from abreast.assembly.trees.agents import ChildGroups, ChosenAgent, open_agent, place_agent
from abreast.assembly.trees.opened_trees import OpenedTrees, open_trees
from abreast.limits.budget import Budget
from abreast.limits.limit import Limit
from abreast.limits.pool import Pool
from abreast.models.lanes import LaneSettings
from abreast.models.port import Request
from abreast.store.port import Store
from abreast.worktrees.results.item_trees import current

AUTHOR_TREES: Final = "author-worktrees"
"""The lane of the trees; those of the candidates that are checked are others."""


class AuthorAgent:
    """The agent, its caller and its trees."""

    _opened: OpenedTrees

    def __init__(self, caller: AgentCaller, chosen: ChosenAgent) -> None:
        self.caller, self._chosen = caller, chosen

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        chosen: ChosenAgent,
        lanes: dict[str, LaneSettings],
        groups: ChildGroups,
    ) -> "AuthorAgent":
        """Open the agent; it ends with the stack."""
        return cls(await open_agent(stack, chosen, lanes, groups), chosen)

    async def open_trees(
        self,
        stack: AsyncExitStack,
        root: Path,
        width: int,
        *,
        store: Store | None = None,
        resumed_run: str | None = None,
        budget: str | None = None,
    ) -> dict[str, Any]:
        """Make the trees; return the lanes of the run. Raises `PriceUnknown` for such a budget."""
        self.caller.reserve(Request(()), (Budget.parse(budget),) if budget else ())
        self._opened = await open_trees(
            stack, str(root), width, lambda _text: None, store=store, resumed_run=resumed_run
        )
        lanes: dict[str, Limit | list[Limit]] = {AUTHOR_TREES: Pool(self._opened.pool.slots)}
        if self.caller.lane.limits:
            lanes[self.caller.lane.name] = list(self.caller.lane.limits)
        return lanes

    def begin(self, run: str) -> None:
        """Say which run it works for, once that is open."""
        trees = self._opened.of_run(run, lambda item: item.path, AUTHOR_TREES)
        place_agent(self.caller, run, trees=trees, allow=self._chosen.allow)

    async def edit(self, prompt: str, file: str) -> str:
        """Let it work on a prompt; return the text of a file afterwards, empty if unchanged."""
        return await current().run.step("agent", self._edit, prompt, file, hold=AUTHOR_TREES)

    async def _edit(self, prompt: str, file: str) -> str:
        facts = agent_facts(await self.caller.ask(prompt))
        if file not in facts.get("changed", ()):
            return ""
        return await asyncio.to_thread(self._read, str(facts["result"]), file)

    def _read(self, tree: str, file: str) -> str:
        snapshots = self._opened.snapshots
        found = snapshots.entries(tree).get(file)
        return "" if found is None else snapshots.read(found.blob).decode("utf-8", "replace")
