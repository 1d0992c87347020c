"""The driver's side of one agent: sends messages, polls, and notices when it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from abreast.executors.ray.facts import check_facts, node_facts
from abreast.executors.ray.protocol import NodeFacts, ToAgent, ToDriver
from abreast.executors.sources import NodeDiffers


class ActorMethod(Protocol):
    """A method of a Ray actor."""

    def remote(self, *args: object) -> Any:
        """Call it; returns a reference to its result."""


class ActorHandle(Protocol):
    """A Ray actor that is a `NodeAgent`."""

    hello: ActorMethod
    post: ActorMethod
    poll: ActorMethod


class AgentOwner(Protocol):
    """What is told about an agent."""

    def agent_ready(self, agent: AgentClient) -> None:
        """It has answered, with the same versions as ours."""

    def agent_reported(self, agent: AgentClient, messages: list[ToDriver]) -> None:
        """It has sent messages."""

    def agent_lost(self, agent: AgentClient, how: str, refusal: NodeDiffers | None) -> None:
        """It is gone, or can't be used; called once."""


class AgentClient:
    """One agent, starting or ready. All of it happens on the loop of the pool."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handle: ActorHandle,
        owner: AgentOwner,
        *,
        avoids: bool = False,
    ) -> None:
        """`handle` is a new actor, which may have to wait until a node has room for it.

        It `avoids` nodes that seem to be dead.
        """
        self.handle = handle
        self.avoids = avoids
        self.ready = self.lost = False
        self.facts: NodeFacts | None = None
        self.work: set[int] = set()  # numbers of what it was sent and has not ended
        self.functions: set[int] = set()  # those that it has
        self.idle_ticks = 0
        self.node_answers = False  # of a lost one
        self._silent_ticks = 0
        self._loop = loop
        self._owner = owner
        self._batches = 0
        self._outbox: list[ToAgent] = []
        self._watch(handle.hello.remote(), self._greet)

    def __repr__(self) -> str:
        where = "starting" if self.facts is None else f"{self.facts.host} process {self.facts.pid}"
        return f"<agent, {where}, {len(self.work)} at work>"

    @property
    def where(self) -> str:
        """Its node and process, for people."""
        return "a node" if self.facts is None else f"{self.facts.host} (process {self.facts.pid})"

    def send(self, message: ToAgent) -> None:
        """Send a message at the end of this turn of the loop, with the others of the turn."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(message)

    def tick(self, limit: int) -> None:
        """Count a heartbeat; it is lost after `limit` of them without an answer to a poll."""
        if self.ready:
            self._silent_ticks += 1
            if self._silent_ticks > limit:
                self._lose("has not answered")

    def _flush(self) -> None:
        batch, self._outbox = self._outbox, []
        if not self.lost:
            frame = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
            self._watch(self.handle.post.remote(self._batches, frame), self._posted)
            self._batches += 1

    def _watch(self, reference: Any, callback: Callable[[Future[Any]], None]) -> None:
        future: Future[Any] = reference.future()

        def pass_on(done: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed with its pool
                self._loop.call_soon_threadsafe(callback, done)

        future.add_done_callback(pass_on)

    def _greet(self, done: Future[NodeFacts]) -> None:
        if self._failed(done):
            return
        self.facts = done.result()
        try:
            check_facts(node_facts(), self.facts)
        except NodeDiffers as refusal:
            self._lose("can't be used", refusal)
            return
        self.ready = True
        self._poll()
        self._owner.agent_ready(self)

    def _poll(self) -> None:
        self._watch(self.handle.poll.remote(), self._polled)

    def _polled(self, done: Future[list[bytes]]) -> None:
        if self._failed(done):
            return
        self._silent_ticks = 0
        self._poll()
        for frame in done.result():
            self._owner.agent_reported(self, pickle.loads(frame))  # noqa: S301 - from our agent

    def _posted(self, done: Future[None]) -> None:
        self._failed(done)

    def _failed(self, done: Future[Any]) -> bool:
        if not self.lost and (error := done.exception()) is not None:
            # "Died" is what its node says; without that the node itself may be gone.
            self.node_answers = type(error).__name__ == "ActorDiedError"
            self._lose(f"is gone ({type(error).__name__})", _missing_package(error))
        return self.lost

    def _lose(self, how: str, refusal: NodeDiffers | None = None) -> None:
        if not self.lost:
            self.lost, self.ready = True, False
            self._owner.agent_lost(self, how, refusal)


def _missing_package(error: BaseException) -> NodeDiffers | None:
    """What to say if a node can't even import the agent."""
    return (
        NodeDiffers(
            "a node of the Ray cluster has no abreast that can be imported, or lacks cloudpickle: "
            "install it there with its extra ray, in the version of the driver"
        )
        if "ModuleNotFoundError" in str(error)
        else None
    )
