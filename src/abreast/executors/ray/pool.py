"""The agents of this process: starts them as work waits, gives them work, replaces lost ones."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from itertools import count
from typing import Final, TypeAlias

from abreast.core.errors import WorkerDied
from abreast.core.frozen import record
from abreast.executors.ray.client import ActorHandle, AgentClient
from abreast.executors.ray.protocol import (
    AskDriver,
    CallFunction,
    CancelWork,
    DriverAnswer,
    DropFunction,
    LoadFunction,
    RunCommand,
    ToDriver,
)
from abreast.executors.sources import ModuleSource, NodeDiffers

MAX_LOST: Final = 3  # agents that one piece of work may lose before it fails
_LIGHT_SPREAD: Final = 16  # light calls of an agent from which on another node gets one, too
_CLOSED: Final = "the connection to the Ray cluster was closed"
_FAILED_STARTS: Final = 5  # agents in a row that could not start


@record(frozen=True, slots=True)
class Demand:
    """What work needs: Ray's resources, and for light work the module that its agent has loaded.

    Light work, such as a coroutine that waits for a server, shares an agent with other light work.
    """

    resources: tuple[tuple[str, float], ...] = ()
    capacity: int = 1
    source: ModuleSource | None = None


@record(frozen=True, slots=True)
class PoolTimes:
    """Seconds."""

    heartbeat: float = 1.0
    silence: float = 10.0
    """An agent that has not answered for so long is lost."""
    lease: float = 8.0
    """An agent that was not polled for so long ends itself. Less than `silence`: then its work has
    ended before it is done elsewhere."""
    avoid: float = 20.0
    """No agent is started for so long on a node that seems to be dead: Ray itself needs 10 seconds
    to be sure, and would wait for it."""
    unmet: float = 60.0
    """Work for which no node has what it takes fails after so long: a node may come back."""
    idle: float = 10.0
    """An agent without work is ended after so long: until then the next map finds it ready."""


Message: TypeAlias = CallFunction | RunCommand


class Work:
    """A call or a command, from its submission to its end."""

    __slots__ = (
        "agent",
        "cancelled",
        "demand",
        "future",
        "lost",
        "may_repeat",
        "message",
        "on_ask",
        "on_restart",
        "setup",
    )

    def __init__(
        self, message: Message, demand: Demand, setup: LoadFunction | None, *, may_repeat: bool
    ) -> None:
        """`setup` is the function of a call. Work that `may_repeat` survives the loss of a node."""
        self.message = message
        self.demand = demand
        self.setup = setup
        self.may_repeat = may_repeat
        self.future: Future[bytes | None] = Future()  # the packed reply; None if it was cancelled
        self.agent: AgentClient | None = None
        self.cancelled = False
        self.lost = 0
        # Called in the pool's thread: with what it asks of the driver, and when it begins anew.
        self.on_ask: Callable[[int, bytes], None] | None = None
        self.on_restart: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        """What an error calls it."""
        message = self.message
        return f"item {message.item}" if isinstance(message, CallFunction) else message.argv[0]

    def settle(self, reply: bytes | None, error: BaseException | None = None) -> None:
        """Set its end, once."""
        if not self.future.done():
            if error is None:
                self.future.set_result(reply)
            else:
                self.future.set_exception(error)


class AgentGroup:
    """The agents that meet one demand, and the work that waits for one of them."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.waiting: deque[Work] = deque()
        self.agents: list[AgentClient] = []
        self.failed_starts = 0
        self.unmet_ticks = 0
        self.pause_ticks = 0  # until another agent is started, after one that could not start

    def free_agent(self) -> AgentClient | None:
        """The agent with the least work, if it may have more."""
        ready = [agent for agent in self.agents if agent.ready]
        best = min(ready, key=lambda agent: len(agent.work), default=None)
        return best if best is not None and len(best.work) < self.demand.capacity else None

    def missing(self, nodes: int) -> int:
        """How many agents should be started."""
        capacity = self.demand.capacity
        starting = sum(not agent.ready for agent in self.agents)
        needed = math.ceil(len(self.waiting) / capacity)
        if capacity > 1:
            load = len(self.waiting) + sum(len(agent.work) for agent in self.agents)
            needed = max(needed, min(nodes, math.ceil(load / _LIGHT_SPREAD)) - len(self.agents))
        return max(0, needed - starting)


@record(frozen=True, slots=True)
class Cluster:
    """What a pool needs of Ray."""

    start: Callable[[Demand, float, frozenset[str]], ActorHandle]
    """Makes a new actor for a demand, with a lease, not on the nodes given."""
    end: Callable[[ActorHandle], None]
    """Kills an actor."""
    nodes: Callable[[], frozenset[str]]
    """The nodes that Ray takes to be alive."""
    resources: Callable[[], list[dict[str, float]]]
    """What each of those nodes has in all, by the names of Ray."""
    is_connected: Callable[[], bool]
    """Whether this process still has the connection that the pool was made for."""


class AgentPool:
    """All agents of this process, in a thread of its own.

    The loops of runs come and go, and may be blocked by their users' code; agents stay, and are
    polled.
    """

    def __init__(self, cluster: Cluster, times: PoolTimes) -> None:
        """Start the thread, and no agent yet."""
        self._cluster = cluster
        self._times = times
        self._numbers = count()
        self._groups: dict[Demand, AgentGroup] = {}
        self._work: dict[int, Work] = {}
        self._group_of: dict[AgentClient, AgentGroup] = {}
        self._suspects: dict[str, float] = {}  # nodes that seem to be dead, and for how much longer
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="abreast-ray", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.call_later(self._times.heartbeat, self._tick)
        self._loop.run_forever()
        self._loop.close()

    # --- from any thread

    def number(self) -> int:
        """A new number for a function or a piece of work."""
        return next(self._numbers)

    def unmet(self, demand: Demand) -> str | None:
        """Why no node of the cluster can do work of that demand, busy or not; None if one can."""
        nodes = self._cluster.resources()
        if not demand.resources or any(_meets(node, demand) for node in nodes):
            return None
        wanted = _listed(dict(demand.resources))
        have = "; ".join(_listed(node) for node in nodes) or "nothing: there is no node"
        return f"no node of the Ray cluster has {wanted}; they have {have}"

    def submit(self, work: Work) -> None:
        """Have it done; `work.future` is its end."""
        if not self._call(self._submit, work):
            work.settle(None, WorkerDied(_CLOSED))

    def cancel(self, work: Work) -> None:
        """End it; `work.future` is done when it is gone."""
        self._call(self._cancel, work)

    def answer(self, work: Work, asked: int, reply: bytes) -> None:
        """Answer what work asked, if it is still where it asked."""
        self._call(self._send_answer, work, asked, reply)

    def abandon(self, work: Work) -> None:
        """End the agent of work that does not end; what else it does is done elsewhere."""
        self._call(self._abandon, work)

    def drop(self, function: int) -> None:
        """Forget a function whose map has ended."""
        self._call(self._drop, function)

    def _call(self, call: Callable[..., None], *args: object) -> bool:
        """Have the loop call it; False if the pool was shut down."""
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            return False
        return True

    # --- on the loop

    def _submit(self, work: Work) -> None:
        if work.cancelled:
            work.settle(None)
            return
        group = self._groups.get(work.demand)
        is_new = group is None
        if group is None:
            group = self._groups[work.demand] = AgentGroup(work.demand)
        group.waiting.append(work)
        if is_new and work.demand.resources:
            self._end_idle(0, holding=True)  # it may wait for what agents without work hold
        self._dispatch(group)

    def _dispatch(self, group: AgentGroup) -> None:
        while group.waiting and (agent := group.free_agent()) is not None:
            self._assign(agent, group.waiting.popleft())
        if group.waiting and not group.pause_ticks:
            nodes = self._cluster.nodes()
            avoid = nodes & self._suspects.keys()
            avoid = avoid if avoid < nodes else frozenset()
            for _ in range(group.missing(len(nodes))):
                handle = self._cluster.start(group.demand, self._times.lease, avoid)
                agent = AgentClient(self._loop, handle, self, avoids=bool(avoid))
                group.agents.append(agent)
                self._group_of[agent] = group

    def _assign(self, agent: AgentClient, work: Work) -> None:
        message, setup = work.message, work.setup
        if setup is not None and setup.function not in agent.functions:
            agent.functions.add(setup.function)
            agent.send(setup)
        work.agent = agent
        agent.work.add(message.number)
        agent.idle_ticks = 0
        self._work[message.number] = work
        agent.send(message)

    def _cancel(self, work: Work) -> None:
        work.cancelled = True
        group = self._groups.get(work.demand)
        if group is not None and work in group.waiting:
            group.waiting.remove(work)
            work.settle(None)
        elif work.agent is not None and not work.future.done():
            work.agent.send(CancelWork(work.message.number))

    def _send_answer(self, work: Work, asked: int, reply: bytes) -> None:
        if work.agent is not None and not work.future.done():
            work.agent.send(DriverAnswer(work.message.number, asked, reply))

    def _abandon(self, work: Work) -> None:
        if work.agent is not None and not work.future.done():
            self.agent_lost(work.agent, "was ended")

    def _drop(self, function: int) -> None:
        for agent in self._group_of:
            if function in agent.functions:
                agent.functions.discard(function)
                agent.send(DropFunction(function))

    # --- about agents, from `AgentClient`

    def agent_ready(self, agent: AgentClient) -> None:
        """Give it work."""
        group = self._group_of.get(agent)
        if group is not None:
            group.failed_starts = group.pause_ticks = 0
            self._dispatch(group)

    def agent_reported(self, agent: AgentClient, messages: list[ToDriver]) -> None:
        """Settle what has ended."""
        for message in messages:
            if isinstance(message, AskDriver):
                asking = self._work.get(message.number)
                if asking is not None and asking.on_ask is not None:
                    asking.on_ask(message.asked, message.call)
                continue
            work = self._work.pop(message.number, None)
            agent.work.discard(message.number)
            if work is not None:
                work.agent = None
                work.settle(message.reply)
        if (group := self._group_of.get(agent)) is not None:
            self._dispatch(group)

    def agent_lost(self, agent: AgentClient, how: str, refusal: NodeDiffers | None = None) -> None:
        """Have its work done elsewhere, before all that waits."""
        agent.lost, agent.ready = True, False
        group = self._group_of.pop(agent, None)
        if group is None:
            return
        group.agents.remove(agent)
        self._cluster.end(agent.handle)
        if agent.facts is not None and not agent.node_answers:
            self._suspects[agent.facts.node] = self._times.avoid
        for number in sorted(agent.work, reverse=True):
            self._move(group, self._work.pop(number), f"{agent.where} {how}")
        # Of several that were started at once, only the first counts.
        if agent.facts is None and not agent.avoids and not group.pause_ticks:
            group.failed_starts += 1
            # Ray needs seconds to notice a dead node, and starts agents there until then.
            group.pause_ticks = 2**group.failed_starts
        if refusal is not None or group.failed_starts >= _FAILED_STARTS:
            failure = refusal or WorkerDied(f"no agent can be started in the Ray cluster: it {how}")
            while group.waiting:
                group.waiting.popleft().settle(None, failure)
        self._dispatch(group)

    def _move(self, group: AgentGroup, work: Work, how: str) -> None:
        work.agent = None
        work.lost += 1
        if work.cancelled:
            work.settle(None)
        elif work.may_repeat and work.lost < MAX_LOST:
            if work.on_restart is not None:
                work.on_restart()
            group.waiting.appendleft(work)
        else:
            work.settle(None, WorkerDied(f"{work.name}: in the middle of it {how}"))

    # --- heartbeats

    def _tick(self) -> None:
        if not self._cluster.is_connected():
            self._shut_down()
            return
        self._loop.call_later(self._times.heartbeat, self._tick)
        limit = math.ceil(self._times.silence / self._times.heartbeat)
        for agent in list(self._group_of):
            agent.tick(limit)
            agent.idle_ticks += 1
        self._end_idle(self._times.idle)
        self._forget_suspects()
        self._fail_unmet()
        for group in list(self._groups.values()):
            if group.pause_ticks:
                group.pause_ticks -= 1
                self._dispatch(group)

    def _shut_down(self) -> None:
        """Fail all work: the connection to the cluster was closed, and with it all agents."""
        failure = WorkerDied(_CLOSED)
        for agent in self._group_of:
            agent.lost, agent.ready = True, False
        waiting = [work for group in self._groups.values() for work in group.waiting]
        for work in [*self._work.values(), *waiting]:
            work.settle(None, failure)
        self._loop.stop()

    def _fail_unmet(self) -> None:
        """Fail work that waits for what no node has, and has had, for a while."""
        for group in self._groups.values():
            starting = any(not agent.ready for agent in group.agents)
            reason = self.unmet(group.demand) if group.waiting and starting else None
            group.unmet_ticks = group.unmet_ticks + 1 if reason else 0
            if reason and group.unmet_ticks * self._times.heartbeat >= self._times.unmet:
                while group.waiting:
                    group.waiting.popleft().settle(None, WorkerDied(reason))

    def _forget_suspects(self) -> None:
        """Use nodes again that seemed to be dead, after a while."""
        if not self._suspects:
            return
        for node in list(self._suspects):
            self._suspects[node] -= self._times.heartbeat
            if self._suspects[node] <= 0:
                del self._suspects[node]
        if not self._suspects:
            # What they wait for may be on just those nodes.
            for agent in [one for one in self._group_of if one.avoids and one.facts is None]:
                self.agent_lost(agent, "was started anew")

    def _end_idle(self, seconds: float, *, holding: bool = False) -> None:
        """End agents that had no work for `seconds`; of those `holding` resources only.

        Also those that still start, for work that does not wait any more.
        """
        for agent, group in list(self._group_of.items()):
            if agent.work or group.waiting:
                agent.idle_ticks = 0
            elif agent.idle_ticks * self._times.heartbeat >= seconds and (
                group.demand.resources or not holding
            ):
                group.agents.remove(agent)
                del self._group_of[agent]
                agent.lost, agent.ready = True, False
                self._cluster.end(agent.handle)
        for demand, group in list(self._groups.items()):
            if not group.agents and not group.waiting:
                del self._groups[demand]


def _meets(node: Mapping[str, float], demand: Demand) -> bool:
    return all(node.get(name, 0.0) >= number for name, number in demand.resources)


def _listed(resources: Mapping[str, float]) -> str:
    """Resources as they are written in the name of an executor, without those of Ray itself."""
    named = {
        name: number
        for name, number in sorted(resources.items())
        if not name.startswith("node:") and name not in {"memory", "object_store_memory"}
    }
    return ",".join(f"{name}={number:g}" for name, number in named.items()) or "nothing"
