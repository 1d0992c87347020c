"""A subplan's work on a node of a cluster, in a copy of its worktree."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from abreast.executors.environments import sent_variables, with_node_variables
from abreast.jobs.plan.work.assignment import Assignment
from abreast.jobs.plan.work.commands import CallTask, CommandTask, Processes
from abreast.jobs.plan.work.functions import FunctionTask, WorkFunction
from abreast.run.current import current_item
from abreast.worktrees.background import run_in_thread
from abreast.worktrees.errors import SlotClosed
from abreast.worktrees.slot import Slot


@dataclass(frozen=True, slots=True)
class TaskOnNode:
    """Runs a command, or calls a function, on a node; the worktree then has what it wrote there.

    One of `command`, `call` and `function` is given. A function travels with its code.
    """

    lane: str
    """The lane that lends worktrees."""
    command: str | None = None
    call: str | None = None
    home: str = ""
    function: WorkFunction | None = None
    variables: Mapping[str, str] | None = None

    async def __call__(self, assignment: Assignment) -> dict[str, Any]:
        """Raises `SubplanFailed` as the work here would."""
        item = current_item()
        slot = item.held.get(self.lane) if item is not None else None
        if not isinstance(slot, Slot) or slot.nodes is None:
            raise SlotClosed("a subplan is sent to a node from an open worktree")
        environment = sent_variables(os.environ)
        return await slot.nodes.call(
            slot, _WorkThere(self, assignment, environment), wants_changes=True
        )


@dataclass(frozen=True, slots=True)
class _WorkThere:
    """What is called on the node."""

    task: TaskOnNode
    assignment: Assignment
    environment: Mapping[str, str]

    async def __call__(self, slot: Slot) -> dict[str, Any]:
        task = self.task
        assignment = replace(self.assignment, path=slot.root, scratch=slot.scratch)
        if task.function is not None:
            return await FunctionTask(task.function)(assignment)
        if slot.commands is None:
            raise SlotClosed("the copy of the worktree is closed")
        processes = Processes(
            slot.commands,
            variables=task.variables or {},
            environment=with_node_variables(self.environment),
        )
        if task.call is None:
            return await CommandTask(task.command or "", processes)(assignment)
        home = await run_in_thread(lambda _: _home_there(Path(task.home), slot))
        return await CallTask(task.call, str(home), processes)(assignment)


def _home_there(home: Path, slot: Slot) -> Path:
    """Where modules are found: the driver's directory, or a copy if it is part of the worktree."""
    top = slot.repository.top
    if not home.is_relative_to(top):
        return home
    copy = slot.scratch / "home"
    shutil.copytree(slot.path, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    return copy / home.relative_to(top)
