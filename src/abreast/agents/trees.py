"""Agents in worktrees: a tree of its own for each item."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from abreast.agents.process import AgentPlace
from abreast.agents.report import AgentReport
from abreast.worktrees.results.item_trees import ItemTrees, current

_SUBJECT_CHARACTERS = 72


@dataclass(frozen=True, slots=True)
class TreePlaces:
    """Lends each item a copy of the working tree, and records what its agent made of it."""

    trees: ItemTrees

    async def enter(self, *, fresh: bool) -> AgentPlace:
        """The item's tree."""
        slot = await self.trees.enter(fresh=fresh)
        return AgentPlace(slot.root, slot.scratch)

    async def leave(self, report: AgentReport) -> Mapping[str, Any]:
        """The commit, the changed files and the patch."""
        first = next((line for line in report.text.splitlines() if line.strip()), "An agent's work")
        return (await self.trees.keep(first[:_SUBJECT_CHARACTERS])).plain()

    def fail(self, *, goes_on: bool) -> Mapping[str, Any]:
        """The tree of a failed agent, if it has changed anything."""
        tree = self.trees.rescue("cut-off" if goes_on else "failed")
        return (
            {}
            if tree is None
            else {
                "base": self.trees.base_of(current().path),
                "result": tree,
            }
        )
