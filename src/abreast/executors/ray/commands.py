"""Runs commands on the nodes of a Ray cluster, each in a process group that ends with its `run`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Self, cast

from abreast.executors.commands import CommandRefused, Finished
from abreast.executors.environments import sent_variables
from abreast.executors.processes import unpack
from abreast.executors.ray.cluster import check_demand, connect
from abreast.executors.ray.executor import CPU, finish, may_repeat
from abreast.executors.ray.pool import Demand, Work
from abreast.executors.ray.protocol import RunCommand


class RayCommands:
    """Runs commands side by side on the nodes of a cluster; each takes a CPU, or `resources`.

    A command runs in the directory of the same path on its node, with the driver's environment,
    but for what is about a machine (CUDA_VISIBLE_DEVICES, TMPDIR and such), which is the node's,
    and for RAY_*, which it does not see.
    """

    def __init__(self, resources: Mapping[str, float] | None = None) -> None:
        """Start nothing yet."""
        self._demand = CPU if resources is None else Demand(tuple(sorted(resources.items())))
        self._kill_timeout = 5.0  # seconds to wait for the end of a cancelled command

    async def __aenter__(self) -> Self:
        """Connect; raises `ClusterUnusable`."""
        self._pool = connect()
        check_demand(self._pool, self._demand)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to end: every `run` ends its command."""

    def adopt_environment(self) -> None:
        """Do nothing: every command gets the environment as it is when it starts."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        keep: int = 1 << 20,
        started: Callable[[int], None] | None = None,  # noqa: ARG002 - its group is on a node
        output: Callable[[bytes], None] | None = None,
        grace: float | None = None,  # noqa: ARG002 - a node ends it as it ends all its commands
    ) -> Finished:
        """Run a command on a node until it and its process group are gone.

        The arguments and errors are those of `abreast.executors.commands.Commands.run`; `started`
        is not called, and `output` once, at the end. If the node dies, the command is run again on
        another one.
        """
        if not argv:
            raise CommandRefused("a command needs a name")
        variables = sent_variables(os.environ if env is None else env)
        here = os.getcwd() if cwd is None else cwd  # noqa: PTH109 - a text is sent
        message = RunCommand(self._pool.number(), tuple(argv), stdin, here, variables, keep)
        work = Work(message, self._demand, None, may_repeat=may_repeat())
        reply = await finish(self._pool, work, self._kill_timeout)
        finished = cast("Finished", unpack(reply, argv[0]))
        if output is not None:
            output(finished.stdout)
        return finished
