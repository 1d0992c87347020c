"""A subplan's work as a Python function in this process."""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from abreast.core.errors import AbreastError
from abreast.executors.port import BoundCall
from abreast.executors.tasks import LocalExecutor
from abreast.jobs.plan.errors import SubplanFailed
from abreast.jobs.plan.work.assignment import Assignment

WorkFunction: TypeAlias = Callable[[Assignment], Awaitable[Any] | Any]
"""Works on the files of a subplan, in `assignment.path`; plain or `async`."""


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """Calls a function with the `Assignment`: an `async` one as a task, a plain one in a thread.

    A thread can't be stopped, and the worktree goes to another subplan afterwards: after a timeout
    or a stop, a plain function is waited for.
    """

    function: WorkFunction

    async def __call__(self, assignment: Assignment) -> dict[str, Any]:
        """Call the function; raises `SubplanFailed` with the message of its exception."""
        bound: BoundCall[Assignment, Any] = LocalExecutor().bind(self.function, 1)
        try:
            return {"value": await bound.async_call(assignment)}
        except AbreastError:
            raise
        except Exception as error:
            raise SubplanFailed(f"{type(error).__name__}: {error}") from error
        finally:
            await bound.close(math.inf)
