"""The executors and runners of commands that names stand for: `local`, `process`, `ray:GPU=1`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from abreast.executors.port import Executor
from abreast.executors.tasks import LocalExecutor

if TYPE_CHECKING:
    from abreast.executors.commands import CommandRunner
    from abreast.executors.supervisor.client import SupervisorProcess

EXECUTORS: Final = ("local", "process", "ray")
_RAY: Final = "ray"


def find_executor(given: str | Executor) -> Executor:
    """Return the executor of that name; ValueError if there is none."""
    if not isinstance(given, str):
        return given
    if given == "local":
        return LocalExecutor()
    if given == "process":
        from abreast.executors.processes import ProcessExecutor

        return ProcessExecutor()
    resources = check_executor(given)
    from abreast.executors.ray.executor import RayExecutor

    return RayExecutor(resources)


def check_executor(name: str) -> dict[str, float] | None:
    """Return the resources that a name asks of Ray's nodes, if it does.

    Raises ValueError if there is no executor of that name.
    """
    kind, separator, resources = name.partition(":")
    if kind not in EXECUTORS or (separator and kind != _RAY):
        raise ValueError(f"there is no executor {name!r}; choose one of {', '.join(EXECUTORS)}")
    return _read_resources(resources) if separator else None


def is_remote(name: str) -> bool:
    """Whether the executor of that name works on other machines."""
    return name.partition(":")[0] == _RAY


def connect_executor(name: str) -> None:
    """Connect to the cluster of an executor, if it has one, which takes seconds.

    Raises ValueError if there is no executor of that name, and `ClusterUnusable`.
    """
    resources = check_executor(name)
    if is_remote(name):
        from abreast.executors.ray.cluster import check_demand, connect
        from abreast.executors.ray.pool import Demand

        check_demand(connect(), Demand(tuple((resources or {}).items())))


async def open_commands(
    stack: AsyncExitStack, executor: str, early: SupervisorProcess | None = None
) -> CommandRunner:
    """Open what runs commands where an executor of that name works.

    `early` is a supervisor on this machine that was started before.
    """
    if is_remote(executor):
        from abreast.executors.ray.commands import RayCommands

        return await stack.enter_async_context(RayCommands(check_executor(executor)))
    from abreast.executors.commands import Commands

    return await stack.enter_async_context(Commands(early))


def _read_resources(given: str) -> dict[str, float]:
    """Read what a call takes on its node, such as `GPU=1,CPU=4`."""
    found: dict[str, float] = {}
    for part in given.split(","):
        name, separator, number = part.partition("=")
        try:
            found[name.strip()] = float(number)
        except ValueError:
            separator = ""
        if not separator or not name.strip():
            raise ValueError(f"ray:{given}: write resources as ray:GPU=1,CPU=4") from None
    return found
