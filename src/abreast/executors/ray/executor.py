"""The Ray executor: calls of functions, done by the agents of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import pickle
import reprlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Generic, TypeVar, cast

from abreast.executors.driver_requests import DriverRequests
from abreast.executors.port import BoundCall, Capabilities, PortableContextValue
from abreast.executors.processes import environment, pack, unpack
from abreast.executors.ray.cluster import check_demand, connect
from abreast.executors.ray.pool import AgentPool, Demand, PoolTimes, Work
from abreast.executors.ray.protocol import CallFunction, LoadFunction
from abreast.executors.replies import dumps_by_value
from abreast.executors.sources import ModuleSource
from abreast.executors.tasks import is_async
from abreast.executors.worker import Setup

T = TypeVar("T")
R = TypeVar("R")

CPU: Final = Demand((("CPU", 1.0),))
"""What a plain function or a command takes if nothing else is said."""
_LIGHT_CAPACITY: Final = 256  # coroutines of one agent


class RayExecutor:
    """Runs items on the nodes of a Ray cluster.

    A plain function takes a CPU, and runs in a process that is killed when its item is cancelled
    or times out. A coroutine function is light: hundreds of its calls share an agent. `resources`
    are what a call takes instead, by the names that Ray has for them.

        async for outcome in run.map(train, settings, width=8, executor=RayExecutor({"GPU": 1})):
            ...

    It connects to the cluster of RAY_ADDRESS, or to the one that runs on this machine, or uses the
    connection that `ray.init` made. If a node dies, its calls are made again elsewhere and that is
    no attempt, unless the map's effect is "once": such an item fails with `WorkerDied`.
    """

    carries = Capabilities(closures=True, contextvars=False, exceptions=True)

    def __init__(
        self, resources: Mapping[str, float] | None = None, *, times: PoolTimes | None = None
    ) -> None:
        """Connect to nothing yet; `times` are for tests."""
        for name, value in (resources or {}).items():
            if isinstance(value, bool) or not 0 <= value < math.inf:
                raise ValueError(f"{name}: a resource is a number of at least 0, not {value!r}")
        self._resources = None if resources is None else tuple(sorted(resources.items()))
        self._times = times

    def bind(
        self,
        fn: Callable[[T], Awaitable[R] | R],
        width: int,  # noqa: ARG002 - part of the port; agents are started on demand
    ) -> BoundCall[T, R]:
        """Pickle the function, with its code if it has no name that nodes could find.

        It waits for the connection. Raises `ClusterUnusable`, and TypeError for a function that
        can't be pickled.
        """
        pool = connect(self._times)
        setup = Setup(
            environment(), {}, _pickle_function(fn), by_value=True, source=ModuleSource.of(fn)
        )
        light = is_async(fn)
        given = self._resources
        if given is not None:
            demand = Demand(given, source=setup.source if light else None)
        elif light:
            demand = Demand(capacity=_LIGHT_CAPACITY, source=setup.source)
        else:
            demand = CPU
        check_demand(pool, demand)
        message = LoadFunction(pool.number(), pickle.dumps(setup), light)
        return RayCalls[T, R](pool, message, demand)


class RayCalls(Generic[T, R]):
    """One map's function."""

    def __init__(self, pool: AgentPool, setup: LoadFunction, demand: Demand) -> None:
        # Seconds to wait for the end of cancelled work; its process is killed at once.
        self.kill_timeout = 5.0
        self._pool, self._setup, self._demand = pool, setup, demand
        self._dumps = dumps_by_value()
        self._open: set[Work] = set()

    async def async_call(self, value: T) -> R:
        """Call the function on a node. When cancelled, it returns once the work has ended."""
        request = pack(value, self._dumps)
        name = reprlib.repr(value)
        message = CallFunction(self._pool.number(), self._setup.function, request, name)
        work = Work(message, self._demand, self._setup, may_repeat=may_repeat())
        asked = DriverRequests(partial(self._pool.answer, work))
        loop = asyncio.get_running_loop()
        work.on_ask = lambda *given: _call_in(loop, asked.handle, *given)
        work.on_restart = lambda: _call_in(loop, asked.restart)
        self._open.add(work)
        try:
            reply = await finish(self._pool, work, self.kill_timeout)
        finally:
            if work.future.done():
                self._open.discard(work)
            await asked.close()
        return cast("R", unpack(reply, value))

    async def close(self, grace: float) -> list[str]:
        """End all work; the agent of what has not ended after `grace` seconds is ended, too."""
        left = [asyncio.wrap_future(work.future) for work in self._open]
        for work in self._open:
            self._pool.cancel(work)
        if left and (await asyncio.wait(left, timeout=grace))[1]:
            for work in self._open:
                self._pool.abandon(work)
            await asyncio.wait(left, timeout=self.kill_timeout)
        self._pool.drop(self._setup.function)
        return [work.name for work in self._open if not work.future.done()]


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: the run is over
        loop.call_soon_threadsafe(call, *args)


async def finish(pool: AgentPool, work: Work, kill_timeout: float) -> bytes:
    """Have work done, and return its packed reply.

    When cancelled, it ends the work and waits for that, for at most `kill_timeout` seconds.
    """
    pool.submit(work)
    ended = asyncio.wrap_future(work.future)
    try:
        reply = await asyncio.shield(ended)
    except asyncio.CancelledError:
        pool.cancel(work)
        if not work.future.done():
            await asyncio.wait([ended], timeout=kill_timeout)
        if ended.done() and not ended.cancelled():
            ended.exception()  # it is of no interest any more
        raise
    if reply is None:
        raise asyncio.CancelledError
    return reply


def may_repeat() -> bool:
    """Whether the work of this context may be done again if its node is lost."""
    values = contextvars.copy_context().values()
    return all(found.may_repeat for found in values if isinstance(found, PortableContextValue))


def _pickle_function(fn: Callable[..., object]) -> bytes:
    try:
        return dumps_by_value()(fn)
    except Exception as error:
        raise TypeError(f"{fn!r} can't be taken to another process: {error}") from error
