"""The work process of an agent: does what the driver sends, on a node.

A plain function runs in a worker process and a command in a process group of its own, so that both
can be killed; coroutine functions run here as tasks, many at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import pickle
import reprlib
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from abreast.executors.commands import Commands
from abreast.executors.environments import with_node_variables
from abreast.executors.port import DRIVER
from abreast.executors.processes import Workers
from abreast.executors.ray.protocol import (
    HEADER,
    AskDriver,
    CallFunction,
    CancelWork,
    DriverAnswer,
    DropFunction,
    LoadFunction,
    RunCommand,
    ToAgent,
    ToDriver,
    WorkEnded,
    take_frames,
)
from abreast.executors.replies import (
    dumps_by_reference,
    dumps_by_value,
    failure_reply,
    success_reply,
)
from abreast.executors.worker import Setup
from abreast.executors.worker_channel import NO_ANSWER, unpack_answer
from abreast.executors.worker_process import WorkerProcess

_CLOSE_GRACE = 1.0  # seconds that idle workers of an ended map have to end by themselves
_EXIT_SECONDS = 1.0  # that cancelled work has to remove its files, after the agent is gone
_READ_BYTES = 1 << 18


def main(channel: int, sys_path: Sequence[str]) -> None:
    """Work until the agent at the other end of `channel` is gone."""
    os.set_inheritable(channel, False)  # noqa: FBT003 - it has no keyword
    sys.path += [entry for entry in sys_path if entry not in sys.path]
    connection = socket.socket(fileno=channel)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    WorkChannel(loop, connection)
    loop.run_forever()


class WorkChannel:
    """The work process's end of the socket to its agent."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003 - it has no keyword
        self._loop, self._socket = loop, connection
        self._inbox = bytearray()
        self._outbox: list[ToDriver] = []
        self._unsent = bytearray()
        self._work = AgentWork(loop, self._report)
        loop.add_reader(connection, self._read)

    def _read(self) -> None:
        try:
            chunk = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._loop.remove_reader(self._socket)
            # Worker processes and the supervisor of commands end with this process in any case.
            self._loop.call_later(_EXIT_SECONDS, os._exit, 0)
            self._work.cancel_all(partial(os._exit, 0))
            return
        self._inbox += chunk
        for frame in take_frames(self._inbox):
            self._work.handle(pickle.loads(frame))  # noqa: S301 - from our driver

    def _report(self, message: ToDriver) -> None:
        """Send a message at the end of this turn of the loop, with the others of the turn."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(message)

    def _flush(self) -> None:
        frame = pickle.dumps(self._outbox, pickle.HIGHEST_PROTOCOL)
        self._outbox = []
        waits = bool(self._unsent)
        self._unsent += HEADER.pack(len(frame)) + frame
        if not waits:
            self._loop.add_writer(self._socket, self._write)

    def _write(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:  # the agent is gone, which `_read` notices
            self._unsent.clear()
        if not self._unsent:
            self._loop.remove_writer(self._socket)


class AgentWork:
    """The work of one agent, on the loop of its process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[ToDriver], None]) -> None:
        """`report` is called with every message for the driver."""
        self._loop, self._report = loop, report
        self._functions: dict[int, _Function] = {}
        self._tasks: dict[int, asyncio.Task[bytes]] = {}
        self._cancelled: set[int] = set()
        self._asking: dict[int, Callable[[int, bytes], None]] = {}  # who gets answers, by work
        self._commands: Commands | None = None
        self._when_idle: Callable[[], None] | None = None

    def handle(self, messages: list[ToAgent]) -> None:
        """Do what the messages say; returns at once."""
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
                case DriverAnswer():
                    if (answer := self._asking.get(message.number)) is not None:
                        answer(message.asked, message.reply)

    def _start(self, number: int, work: Coroutine[Any, Any, bytes]) -> None:
        task = asyncio.Task(work, loop=self._loop, context=contextvars.Context())
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._end(number, task))

    def _cancel(self, number: int) -> None:
        if (task := self._tasks.get(number)) is not None:
            self._cancelled.add(number)
            task.cancel()

    def cancel_all(self, then: Callable[[], None]) -> None:
        """Cancel everything; call `then` when it has ended."""
        if not self._tasks:
            then()
        self._when_idle = then
        for number in list(self._tasks):
            self._cancel(number)

    def _end(self, number: int, task: asyncio.Task[bytes]) -> None:
        del self._tasks[number]
        self._cancelled.discard(number)
        self._asking.pop(number, None)
        if not self._tasks and self._when_idle is not None:
            self._when_idle()
        if number >= 0:
            self._report(WorkEnded(number, None if task.cancelled() else task.result()))

    async def _call(self, message: CallFunction) -> bytes:
        function = self._functions[message.function]
        try:
            if function.workers is not None:
                return bytes(
                    await function.workers.ask(
                        message.request, message.item, partial(self._ask_for, message.number)
                    )
                )
            channel = TaskChannel(message.number, self._report)
            self._asking[message.number] = channel.answer
            DRIVER.set(channel)
            return await function.call(message)
        except BaseException as error:
            if message.number in self._cancelled:
                raise asyncio.CancelledError from error
            return failure_reply(error, message.item, __file__)

    def _ask_for(self, work: int, worker: WorkerProcess, asked: int, call: bytes) -> None:
        self._asking[work] = worker.answer
        self._report(AskDriver(work, asked, call))

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
                env=with_node_variables(message.variables),
                keep=message.keep,
            )
        except Exception as error:  # noqa: BLE001 - raised by the driver's `run`
            return failure_reply(error, message.argv[0], __file__)
        return success_reply(finished, message.argv[0])


class TaskChannel:
    """The way from a coroutine of this process to the driver."""

    def __init__(self, work: int, report: Callable[[ToDriver], None]) -> None:
        self._work, self._report = work, report
        self._numbers = count()
        self._asked: dict[int, asyncio.Future[bytes]] = {}

    def post(self, call: Callable[[], object]) -> None:
        """Have the driver call it before it uses the reply."""
        self._report(AskDriver(self._work, NO_ANSWER, dumps_by_reference(call)))

    async def ask(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Have the driver call it; return the result, or raise the error."""
        number = next(self._numbers)
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._report(AskDriver(self._work, number, dumps_by_reference(call)))
        return unpack_answer(await future)

    def answer(self, number: int, reply: bytes) -> None:
        """Take the driver's answer."""
        future = self._asked.pop(number, None)
        if future is not None and not future.done():
            future.set_result(reply)


class _Function:
    """A map's function on this node."""

    def __init__(self, message: LoadFunction) -> None:
        sent: Setup = pickle.loads(message.setup)  # noqa: S301 - from our driver
        # Python and its packages may be in another place here; what the driver has besides, too.
        self._setup = replace(sent, prepare={**sent.prepare, "sys_path": list(sys.path)})
        self.workers = None if message.is_async else Workers[Any, Any](self._setup)
        self._loaded: Callable[[Any], Any] | None = None

    async def call(self, message: CallFunction) -> bytes:
        """Call a coroutine function, here; the reply is packed."""
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
        if self.workers is not None:
            await self.workers.close(_CLOSE_GRACE)
        return b""
