"""A command as a check of a sample: it passes in the tree that the draw has made."""

import os
from dataclasses import dataclass

from abreast.core.frozen import record
from abreast.jobs.plan.work.commands import Processes
from abreast.jobs.sample.checks import CheckedDraft
from abreast.jobs.sample.results import CheckVerdict
from abreast.worktrees.results.item_trees import ItemTrees

_REASON_LINES = 20  # of what the command has printed last
_REASON_CHARACTERS = 2_000


@record(slots=True)
class CheckTools:
    """What commands need to run; there once the run is open."""

    trees: ItemTrees | None = None
    processes: Processes | None = None


@dataclass(frozen=True, slots=True)
class CommandCheck:
    """Runs a command by `sh` in the tree of the draw; it passes if the exit code is 0."""

    command: str
    tools: CheckTools
    shown: str | None

    @classmethod
    def of(cls, command: str, tools: CheckTools) -> "CommandCheck":
        """The check of a command; raises ValueError if it is empty."""
        if not command:
            raise ValueError("the check 'run' needs a command, such as 'run pytest -q'")
        return cls(command, tools, f"The command `{command}` must succeed.")

    @property
    def name(self) -> str:
        """The command itself."""
        return self.command

    @property
    def costs(self) -> bool:
        """It asks no model."""
        return False

    async def run(self, draft: CheckedDraft) -> CheckVerdict:
        """Run the command; what it prints last is the reason of a failure."""
        del draft
        trees, processes = self.tools.trees, self.tools.processes
        if trees is None or processes is None:
            raise RuntimeError("a command checks a tree inside of a run")
        slot = await trees.enter(fresh=False)
        slot.let_go()  # what it has is kept, as the result of the draw
        try:
            finished = await processes.run(["sh", "-c", self.command], slot.root, os.environ)
        finally:
            trees.leave()
        if not finished.exit_code:
            return CheckVerdict(self.name, ok=True)
        printed = (finished.stdout + finished.stderr).decode("utf-8", "replace")
        lines = "\n".join(printed.strip().splitlines()[-_REASON_LINES:])
        reason = f"exit code {finished.exit_code}\n{lines[-_REASON_CHARACTERS:]}".strip()
        return CheckVerdict(self.name, ok=False, reason=reason)
