"""The agent: a Ray actor on a node, which does the work that the driver sends.

A plain function runs in a worker process of ours and a command in a process group of its own, so
that both can be killed; coroutine functions run as tasks, many at once. All of it is in a thread of
its own: code that blocks its loop does not stop the heartbeat.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import pickle
import reprlib
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from abreast.executors.commands import Commands
from abreast.executors.processes import Workers
from abreast.executors.ray.facts import node_facts
from abreast.executors.ray.protocol import (
    POLL_SECONDS,
    CallFunction,
    CancelWork,
    DropFunction,
    LoadFunction,
    NodeFacts,
    RunCommand,
    ToAgent,
    ToDriver,
    WorkEnded,
)
from abreast.executors.replies import dumps_by_value, failure_reply, success_reply
from abreast.executors.worker import Setup

_CLOSE_GRACE = 1.0  # seconds that idle workers of an ended map have to end by themselves


class NodeAgent:
    """What the driver calls: `hello` once, then `post` and `poll`.

    It ends itself, and with it all its work, when it has not been polled for `lease` seconds: then
    the driver is dead or can't reach it, and does the work elsewhere.
    """

    def __init__(self, lease: float, sys_path: Sequence[str]) -> None:
        """Find modules as the driver does; start the thread that works."""
        sys.path += [entry for entry in sys_path if entry not in sys.path]
        self._lease = lease
        self._expiry: asyncio.TimerHandle | None = None
        self._next_batch = 0
        self._early: dict[int, list[ToAgent]] = {}
        self._outbox: list[ToDriver] = []
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work = AgentWork(self._report)

    async def hello(self) -> NodeFacts:
        """Where this is, and its versions."""
        self._loop = asyncio.get_running_loop()
        self._renew_lease(self._loop)
        return node_facts()

    async def post(self, number: int, messages: list[ToAgent]) -> None:
        """Take messages; batches are numbered, as Ray may deliver them in another order."""
        self._early[number] = messages
        while (batch := self._early.pop(self._next_batch, None)) is not None:
            self._next_batch += 1
            self._work.receive(batch)

    async def poll(self) -> list[ToDriver]:
        """Wait for something to report, for at most `POLL_SECONDS`."""
        self._renew_lease(asyncio.get_running_loop())
        if not self._outbox:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
        self._news.clear()
        messages, self._outbox = self._outbox, []
        return messages

    def _renew_lease(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        # Not an orderly exit: worker processes and the supervisor of commands end with this one.
        self._expiry = loop.call_later(self._lease, os._exit, 1)

    def _report(self, message: ToDriver) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._queue, message)

    def _queue(self, message: ToDriver) -> None:
        self._outbox.append(message)
        self._news.set()


class AgentWork:
    """The work of one agent, on a loop in a thread of its own.

    The thread lives as long as the process: the workers that it starts end with it.
    """

    def __init__(self, report: Callable[[ToDriver], None]) -> None:
        self._report = report
        self._functions: dict[int, _Function] = {}
        self._tasks: dict[int, asyncio.Task[bytes]] = {}
        self._cancelled: set[int] = set()
        self._commands: Commands | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="abreast-work", daemon=True).start()

    def receive(self, messages: list[ToAgent]) -> None:
        """Do what the messages say; returns at once, from any thread."""
        self._loop.call_soon_threadsafe(self._handle, messages)

    def _handle(self, messages: list[ToAgent]) -> None:
        for message in messages:
            match message:
                case LoadFunction():
                    self._functions[message.function] = _Function(message)
                case DropFunction():
                    if (found := self._functions.pop(message.function, None)) is not None:
                        self._start(-1 - message.function, found.close())
                case CallFunction():
                    self._start(message.number, self._call(message))
                case RunCommand():
                    self._start(message.number, self._run_command(message))
                case CancelWork():
                    self._cancel(message.number)

    def _start(self, number: int, work: Coroutine[Any, Any, bytes]) -> None:
        task = asyncio.Task(work, loop=self._loop, context=contextvars.Context())
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._end(number, task))

    def _cancel(self, number: int) -> None:
        if (task := self._tasks.get(number)) is not None:
            self._cancelled.add(number)
            task.cancel()

    def _end(self, number: int, task: asyncio.Task[bytes]) -> None:
        del self._tasks[number]
        self._cancelled.discard(number)
        if number >= 0:
            self._report(WorkEnded(number, None if task.cancelled() else task.result()))

    async def _call(self, message: CallFunction) -> bytes:
        try:
            reply = await self._functions[message.function].call(message)
        except BaseException as error:
            if message.number in self._cancelled:
                raise asyncio.CancelledError from error
            return failure_reply(error, message.item, __file__)
        return reply

    async def _run_command(self, message: RunCommand) -> bytes:
        try:
            if self._commands is None:
                # Set before the first await, so that two commands don't make two.
                self._commands = Commands()
                await self._commands.__aenter__()
            finished = await self._commands.run(
                message.argv,
                stdin=message.stdin,
                cwd=message.cwd,
                env={**os.environ, **message.variables},
                keep=message.keep,
            )
        except Exception as error:  # noqa: BLE001 - raised by the driver's `run`
            return failure_reply(error, message.argv[0], __file__)
        return success_reply(finished, message.argv[0])


class _Function:
    """A map's function on this node."""

    def __init__(self, message: LoadFunction) -> None:
        self._setup: Setup = pickle.loads(message.setup)  # noqa: S301 - from our driver
        self._workers = None if message.is_async else Workers[Any, Any](self._setup)
        self._loaded: Callable[[Any], Any] | None = None

    async def call(self, message: CallFunction) -> bytes:
        """Call it, in a worker process or here; the reply is packed."""
        if self._workers is not None:
            return bytes(await self._workers.ask(message.request, message.item))
        if self._loaded is None:
            if self._setup.source is not None:
                self._setup.source.check()
            self._loaded = pickle.loads(self._setup.function)  # noqa: S301 - from our driver
        value, luggage = pickle.loads(message.request)  # noqa: S301 - from our driver
        for unpack in luggage:
            unpack()
        item, dumps = f"item {reprlib.repr(value)}", dumps_by_value()
        try:
            result = await self._loaded(value)
        except asyncio.CancelledError:
            raise  # `AgentWork` knows whether the driver wants that
        except BaseException as error:  # noqa: BLE001 - SystemExit too is just this item's failure
            return failure_reply(error, item, __file__, dumps)
        return success_reply(result, item, dumps)

    async def close(self) -> bytes:
        """End its worker processes."""
        if self._workers is not None:
            await self._workers.close(_CLOSE_GRACE)
        return b""
