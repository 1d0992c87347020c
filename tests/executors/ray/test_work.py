"""The work process of an agent and the pool of agents, without Ray: agents are threads here."""

import asyncio
import os
import pickle
import threading
from concurrent.futures import Future

import pytest

from abreast.core.errors import WorkerDied
from abreast.executors.commands import CommandMissing
from abreast.executors.ray.cluster import ClusterUnusable, check_demand
from abreast.executors.ray.facts import check_facts, node_facts
from abreast.executors.ray.pool import AgentPool, Cluster, Demand, PoolTimes, Work
from abreast.executors.ray.protocol import (
    CallFunction,
    CancelWork,
    DropFunction,
    LoadFunction,
    RunCommand,
    WorkEnded,
)
from abreast.executors.ray.work import AgentWork
from abreast.executors.sources import ModuleSource, NodeDiffers
from abreast.executors.worker import Setup
from tests.executors import work

pytest.importorskip("cloudpickle")
pytestmark = pytest.mark.usefixtures("unmeasured")


def load(fn, number=0, *, source=None):
    setup = Setup({"sys_path": []}, {}, pickle.dumps(fn), by_value=True, source=source)
    return LoadFunction(number, pickle.dumps(setup), is_async=asyncio.iscoroutinefunction(fn))


def call(number, value, function=0):
    return CallFunction(number, function, pickle.dumps((value, [])), repr(value))


class Reports:
    """What an `AgentWork` reports, by number."""

    def __init__(self):
        self.agent = AgentWork(asyncio.get_running_loop(), self._receive)
        self._ended = {}

    def _receive(self, message):
        self.reply(message.number).set_result(message.reply)

    def reply(self, number):
        future = asyncio.get_running_loop().create_future()
        return self._ended.setdefault(number, future)

    async def result(self, number):
        async with asyncio.timeout(60):
            return pickle.loads(await self.reply(number))[:2]


@pytest.mark.parametrize("fn", [work.double, work.double_later])
async def test_a_function_is_called_where_the_agent_is(fn):
    reports = Reports()
    reports.agent.handle([load(fn), call(1, 21), call(2, 4)])
    assert await reports.result(1) == (True, 42)
    assert await reports.result(2) == (True, 8)
    reports.agent.handle([DropFunction(0)])
    await asyncio.wait(reports.agent._tasks.values(), timeout=60)
    assert reports.agent._tasks == {}


async def test_a_failure_is_the_reply():
    reports = Reports()
    reports.agent.handle([load(work.fail_later), call(1, "value"), call(2, "cancelled")])
    for number, kind in ((1, ValueError), (2, asyncio.CancelledError)):
        succeeded, error = await reports.result(number)
        assert (succeeded, type(error)) == (False, kind)


async def test_cancelled_work_is_reported_when_it_is_gone():
    async def wait(_):
        await asyncio.Event().wait()

    import cloudpickle

    setup = Setup({"sys_path": []}, {}, cloudpickle.dumps(wait), by_value=True)
    reports = Reports()
    reports.agent.handle([LoadFunction(0, pickle.dumps(setup), is_async=True), call(1, 0)])
    await asyncio.sleep(0)
    reports.agent.handle([CancelWork(1), CancelWork(99)])
    assert await reports.reply(1) is None


async def test_commands_see_the_variables_that_are_sent_and_those_of_their_node(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/of/the/node")
    monkeypatch.setenv("SECRET", "of the node")
    reports = Reports()
    script = 'echo "$TMPDIR|$SECRET|$COLOUR"'
    sent = {"PATH": os.environ["PATH"], "COLOUR": "red"}
    reports.agent.handle(
        [
            RunCommand(1, ("sh", "-c", script), None, None, sent, 1000),
            RunCommand(2, ("no-such-command",), None, None, sent, 1000),
        ]
    )
    succeeded, finished = await reports.result(1)
    assert (succeeded, finished.stdout) == (True, b"/of/the/node||red\n")
    assert type((await reports.result(2))[1]) is CommandMissing
    await reports.agent._commands.__aexit__()


# --- versions


def test_machines_with_other_versions_are_refused_with_a_sentence():
    here = node_facts()
    check_facts(here, node_facts("elsewhere"))
    other = type(here)
    facts = (here.python, here.abreast, here.code, "node7")
    for place, word in ((0, "Python"), (1, "abreast"), (2, "another state of abreast")):
        there = other(*(*facts[:place], "9.9", *facts[place + 1 :]))
        with pytest.raises(NodeDiffers, match=f"node7 has {word}"):
            check_facts(here, there)


def test_code_that_differs_is_refused_with_a_sentence():
    source = ModuleSource.of(work.double)
    source.check()
    with pytest.raises(NodeDiffers, match=r"another version of tests\.executors\.work"):
        ModuleSource(source.module, "0" * 64).check()
    with pytest.raises(NodeDiffers, match=r"has no module no_such\.module"):
        ModuleSource("no_such.module", source.digest).check()
    assert ModuleSource.of(len) is None


# --- the pool


class FakeReference:
    def __init__(self, future):
        self._future = future

    def future(self):
        return self._future


NEVER = object()  # the facts of an agent that waits for a node


class ThreadAgent:
    """An agent whose work is a function of the test, called in a thread."""

    def __init__(self, answer, facts):
        self._answer, self._facts = answer, facts
        self.ended = False
        self._poll = None
        self._frames = []
        self._lock = threading.Lock()
        self.hello = self.post = self.poll = None
        for name in ("hello", "post", "poll"):
            setattr(self, name, type("Method", (), {"remote": getattr(self, f"_{name}_remote")}))

    def _hello_remote(self):
        future = Future()
        if self._facts is NEVER:
            return FakeReference(future)
        if isinstance(self._facts, Exception):
            future.set_exception(self._facts)
        else:
            future.set_result(self._facts)
        return FakeReference(future)

    def _post_remote(self, _number, frame):
        for message in pickle.loads(frame):
            if isinstance(message, CallFunction):
                threading.Thread(target=self._run, args=(message,)).start()
        future = Future()
        future.set_result(None)
        return FakeReference(future)

    def _run(self, message):
        reply = self._answer(self, message)
        if reply is not None:
            self.report(WorkEnded(message.number, reply))

    def report(self, message):
        with self._lock:
            self._frames.append(pickle.dumps([message]))
            if self._poll is not None and not self._poll.done():
                self._poll.set_result(self._frames)
                self._frames = []

    def die(self):
        with self._lock:
            if not self._poll.done():
                self._poll.set_exception(ConnectionError("gone"))

    def _poll_remote(self):
        with self._lock:
            self._poll = Future()
            if self._frames:
                self._poll.set_result(self._frames)
                self._frames = []
            return FakeReference(self._poll)


class FakeCluster:
    def __init__(self, answer, facts=None):
        self.agents = []
        self.avoided = []
        self.connected = True
        self._answer, self._facts = answer, facts

    def start(self, _demand, _lease, avoid):
        self.avoided.append(avoid)
        facts = node_facts(f"node{len(self.agents)}") if self._facts is None else self._facts
        facts = facts() if callable(facts) else facts
        self.agents.append(ThreadAgent(self._answer, facts))
        return self.agents[-1]

    def pool(self, **times):
        cluster = Cluster(
            self.start,
            lambda agent: setattr(agent, "ended", True),
            lambda: frozenset({"node0", "node1"}),
            lambda: [{"CPU": 2.0, "memory": 1e9, "node:10.0.0.1": 1.0}, {"CPU": 4.0, "GPU": 1.0}],
            lambda: self.connected,
        )
        self._pool = AgentPool(cluster, PoolTimes(heartbeat=0.01, **times))
        return self._pool

    def close(self):
        """Close the connection, and wait until the pool has noticed."""
        self.connected = False
        self._pool._thread.join(60)


def submit(pool, number, *, may_repeat=True, capacity=1, resources=()):
    message = CallFunction(number, 0, b"", str(number))
    made = Work(message, Demand(resources, capacity), None, may_repeat=may_repeat)
    pool.submit(made)
    return made


def test_work_of_a_lost_agent_is_done_by_another_on_another_node():
    def answer(agent, _):
        if agent is cluster.agents[0]:
            agent.die()
            return None
        return b"done"

    cluster = FakeCluster(answer)
    pool = cluster.pool()
    assert submit(pool, 1).future.result(60) == b"done"
    assert cluster.avoided == [frozenset(), frozenset({"node0"})]
    assert cluster.agents[0].ended
    cluster.close()


def test_work_that_must_not_be_repeated_fails_and_so_does_what_loses_every_agent():
    begun = []

    def answer(agent, message):
        begun.append(message.number)
        agent.die()

    cluster = FakeCluster(answer)
    pool = cluster.pool(avoid=0.02)
    with pytest.raises(WorkerDied, match="in the middle of it"):
        submit(pool, 1, may_repeat=False).future.result(60)
    with pytest.raises(WorkerDied, match="item 2"):
        submit(pool, 2).future.result(60)
    assert begun == [1, 2, 2, 2]
    cluster.close()


def test_an_agent_that_does_not_answer_is_lost():
    silent = threading.Event()
    cluster = FakeCluster(lambda agent, _: None if agent is cluster.agents[0] else b"done")
    pool = cluster.pool(silence=0.05)
    assert submit(pool, 1).future.result(60) == b"done"
    silent.set()
    cluster.close()


def test_a_cluster_with_other_versions_fails_the_work_with_a_sentence():
    here = node_facts()
    cluster = FakeCluster(None, type(here)("2.7", here.abreast, here.code, "old"))
    with pytest.raises(NodeDiffers, match=r"old has Python 2\.7"):
        submit(cluster.pool(), 1).future.result(60)
    cluster.close()


def test_agents_that_cannot_start_fail_the_work_in_the_end():
    cluster = FakeCluster(None, RuntimeError("no room"))
    with pytest.raises(WorkerDied, match="no agent can be started"):
        submit(cluster.pool(), 1).future.result(60)
    assert len(cluster.agents) == 5
    cluster.close()


def test_a_node_that_lets_no_agent_start_for_a_while_fails_nothing():
    def facts():
        return RuntimeError("gone") if len(cluster.agents) < 8 else node_facts("node9")

    cluster = FakeCluster(lambda *_: b"done", facts)
    pool = cluster.pool()
    found = [submit(pool, number) for number in range(4)]
    assert [one.future.result(60) for one in found] == [b"done"] * 4
    cluster.close()


def test_what_no_node_has_is_named_and_work_that_waits_for_it_fails_in_the_end():
    cluster = FakeCluster(None, NEVER)
    pool = cluster.pool(unmet=0.05)
    reason = "no node of the Ray cluster has CPU=4,GPU=2; they have CPU=2; CPU=4,GPU=1"
    assert pool.unmet(Demand((("CPU", 4.0), ("GPU", 2.0)))) == reason
    assert pool.unmet(Demand((("CPU", 4.0), ("GPU", 1.0)))) is None
    assert pool.unmet(Demand()) is None
    with pytest.raises(ClusterUnusable, match="start a node that has it"):
        check_demand(pool, Demand((("GPU", 2.0),)))
    with pytest.raises(WorkerDied, match="no node of the Ray cluster has GPU=2"):
        submit(pool, 1, resources=(("GPU", 2.0),)).future.result(60)
    cluster.close()


def test_work_that_waits_is_cancelled_at_once_and_a_closed_connection_fails_the_rest():
    begun = threading.Event()

    def answer(*_):
        return b"done" if begun.is_set() else begun.set()

    cluster = FakeCluster(answer)
    pool = cluster.pool(idle=1000.0, silence=1000.0)
    first = submit(pool, 1)
    assert begun.wait(60)
    cancelled = submit(pool, 2)
    pool.cancel(cancelled)
    assert cancelled.future.result(60) in {None, b"done"}  # unless an agent was faster
    cluster.close()
    for lost in (first, submit(pool, 3)):
        with pytest.raises(WorkerDied, match="connection to the Ray cluster was closed"):
            lost.future.result(60)


def test_an_agent_without_work_is_ended_after_a_while():
    cluster = FakeCluster(lambda *_: b"done")
    pool = cluster.pool(idle=0.05)
    assert submit(pool, 1).future.result(60) == b"done"
    ended = threading.Event()
    while not cluster.agents[0].ended:
        ended.wait(0.01)
    cluster.close()


def test_light_work_shares_an_agent_on_each_node():
    gate = threading.Event()
    cluster = FakeCluster(lambda *_: gate.wait(60) and b"done")
    pool = cluster.pool(silence=1000.0)
    found = [submit(pool, number, capacity=100) for number in range(64)]
    gate.set()
    assert {one.future.result(60) for one in found} == {b"done"}
    assert 1 <= len(cluster.agents) <= 2
    cluster.close()
