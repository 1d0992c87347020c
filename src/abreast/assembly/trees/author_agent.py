"""A coding agent as the author of candidates: each request is a step in a tree of its own."""

import asyncio
import contextlib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from abreast.agents.caller import AgentCaller
from abreast.agents.model import agent_facts
from abreast.assembly.trees.agents import (
    ChildGroups,
    ChosenAgent,
    held_lane,
    open_agent,
    place_agent,
)
from abreast.assembly.trees.opened_trees import OpenedTrees, open_trees
from abreast.jobs.candidates.source.changes import (
    CandidateSource,
    as_source,
    read_change,
    refuse_path,
)
from abreast.jobs.candidates.source.target import CandidateInvalid
from abreast.limits.budget import Budget
from abreast.limits.pool import Pool
from abreast.models.port import Request
from abreast.store.port import Store
from abreast.worktrees.results.item_trees import current

AUTHOR_TREES: Final = "author-worktrees"
"""The lane of the trees; those of the candidates that are checked are others."""

_FILE_MODES: Final = frozenset({"100644", "100755"})


class AuthorAgent:
    """The agent, its caller and its trees."""

    _opened: OpenedTrees
    _root: Path

    def __init__(self, caller: AgentCaller, chosen: ChosenAgent) -> None:
        self.caller, self._chosen = caller, chosen
        self.protected: tuple[str, ...] = ()  # tests and scripts; it can't change these

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        chosen: ChosenAgent,
        groups: ChildGroups,
    ) -> "AuthorAgent":
        """Open the agent; it ends with the stack."""
        return cls(await open_agent(stack, chosen, groups), chosen)

    async def open_trees(
        self,
        stack: AsyncExitStack,
        root: Path,
        width: int,
        *,
        store: Store | None = None,
        resumed_run: str | None = None,
        budget: Budget | str | None = None,
    ) -> dict[str, Any]:
        """Make the trees; return the lanes of the run. Raises `PriceUnknown` for such a budget."""
        cap = Budget.parse(budget) if isinstance(budget, str) and budget else budget
        self.caller.reserve(Request(()), (cap,) if isinstance(cap, Budget) else ())
        self._root = root
        self._opened = await open_trees(
            stack, str(root), width, lambda _text: None, store=store, resumed_run=resumed_run
        )
        return {AUTHOR_TREES: Pool(self._opened.pool.slots), **held_lane(self.caller)}

    def begin(self, run: str) -> None:
        """Say which run it works for, once that is open."""
        trees = self._opened.of_run(run, lambda item: item.path, AUTHOR_TREES)
        place_agent(self.caller, run, trees=trees, allow=self._chosen.allow)

    async def edit(self, prompt: str, file: str) -> CandidateSource:
        """Let it work on a prompt; return the text of a file afterwards, empty if unchanged.

        And the other Python files that it has changed, as far as a candidate may change them:
        tests, configuration and links are left out.
        """
        found = await current().run.step("agent", self._edit, prompt, file, hold=AUTHOR_TREES)
        return as_source(found)

    async def _edit(self, prompt: str, file: str) -> str | CandidateSource:
        facts = agent_facts(await self.caller.ask(prompt))
        changed = [str(one) for one in facts.get("changed", ())]
        if not changed:
            return ""
        return await asyncio.to_thread(self._read, str(facts["result"]), file, changed)

    def _read(self, tree: str, file: str, changed: list[str]) -> str | CandidateSource:
        snapshots = self._opened.snapshots
        entries = snapshots.entries(tree)

        def text_of(path: str) -> str | None:
            found = entries.get(path)
            if found is None or found.mode not in _FILE_MODES:
                return None
            return snapshots.read(found.blob).decode("utf-8", "replace")

        files = []
        for path in sorted(set(changed) - {file}):
            linked = path in entries and entries[path].mode not in _FILE_MODES
            if linked or not path.endswith(".py") or refuse_path(path, self.protected):
                continue
            with contextlib.suppress(CandidateInvalid):
                files.append(read_change(self._root, path, text_of(path)))
        others = tuple(one for one in files if one is not None)
        # If it has changed only what the function uses, the function's file is as it was.
        text = text_of(file) if file in changed or others else ""
        return CandidateSource(text or "", others) if others else text or ""
