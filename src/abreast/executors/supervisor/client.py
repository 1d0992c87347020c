"""The driver's side of a supervisor process: starts it, exchanges messages, notices its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from abreast.executors.supervisor import protocol
from abreast.executors.supervisor.protocol import Message

_READ_BYTES = 1 << 16  # reads of more than 128 KiB are mapped and unmapped by malloc every time
# Empty stand-ins for the packages: the real ones import all of abreast, which takes longer than the
# supervisor's whole start.
_PROGRAM = """
import sys
for name, directory in {directories!r}:
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [directory]
from abreast.executors.supervisor.process import main
main({channel}, {driver})
"""
_INTERPRETER_FLAGS = ("-I", "-S")
_PACKAGE_DIRECTORY = Path(__file__).parent


class SupervisorProcess:
    """A supervisor's process and the driver's end of the socket to it.

    It can be started before there is a loop.
    """

    def __init__(self, home: str | None) -> None:
        """Start it without waiting until it is up.

        Commands without a `cwd` run in the directory `home`.
        """
        self.channel, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(self.channel.close)
            self.process = _start_supervisor(theirs.fileno(), home)
            undo.pop_all()

    def end(self) -> int:
        """Kill it and everything that it has started; return its exit code."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        # Before the supervisor is reaped: afterwards its process id may belong to another process.
        protocol.kill_session(self.process.pid)
        return self.process.wait()


class SupervisorClient:
    """The driver's connection to one supervisor process."""

    def __init__(
        self,
        started: SupervisorProcess,
        on_message: Callable[[Message], None],
        on_end: Callable[[SupervisorClient, str], None],
    ) -> None:
        """Attach to a supervisor process, on the running loop.

        Args:
            started: its process; may still be starting.
            on_message: called with each message about a command.
            on_end: called with the reason, once the supervisor and all its commands have ended.
        """
        self._started = started
        self._on_message = on_message
        self._on_end = on_end
        self.ready = False  # it has sent READY
        self.unanswered = 0  # commands sent to it, about which no message has come yet
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._inbox = bytearray()
        self._unsent = bytearray()
        self._buffer_full = False  # the socket's buffer is full
        self._outbox: list[Message] = []
        self._end_reason = ""
        self._socket = started.channel
        self.pid = started.process.pid
        self._socket.setblocking(False)  # noqa: FBT003 - it has no keyword
        self._loop.add_reader(self._socket, self._read)

    def __repr__(self) -> str:
        return f"<supervisor {self.pid}, {'ended' if self._ended.done() else 'running'}>"

    def send(self, message: Message) -> None:
        """Send a message at the end of this turn of the loop, with the others of the turn."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(message)

    def close_input(self) -> None:
        """Make the supervisor end its commands and itself, by closing the way to it."""
        self._end_reason = "was closed"
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def close(self, timeout: float) -> None:
        """Wait until it has ended, after `close_input`, also when this is cancelled.

        It is killed if it has not ended after `timeout` seconds.
        """
        cancelled = None
        while not self._ended.done():
            try:
                await asyncio.wait([self._ended], timeout=timeout)
                self._end()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _flush(self) -> None:
        self._unsent += protocol.pack(self._outbox)
        self._outbox = []
        self._write()

    def _write(self) -> None:
        """Write what the socket takes; never waits, as the supervisor may wait for us to read."""
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, which `_read` notices
            self._unsent.clear()
        full = bool(self._unsent)
        if full and not self._buffer_full:
            self._loop.add_writer(self._socket, self._write)
        elif self._buffer_full and not full and not self._ended.done():
            self._loop.remove_writer(self._socket)
        self._buffer_full = full

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._inbox += data
        for message in protocol.unpack(self._inbox):
            if message[0] == protocol.BROKEN:
                self._end_reason = "\n".join(message[1:])
            elif message[0] == protocol.READY:
                self.ready = True
            else:
                self._on_message(message)
        if not data:
            self._end()

    def _end(self) -> None:
        """Kill what is left of it, and report its end once."""
        if self._ended.done():
            return
        self._ended.set_result(None)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        code = self._started.end()
        self._on_end(
            self,
            self._end_reason
            or (f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"),
        )


def _start_supervisor(channel: int, home: str | None) -> subprocess.Popen[bytes]:
    names = ("abreast.executors.supervisor", "abreast.executors", "abreast")
    directories = [
        (name, str(directory))
        for name, directory in zip(
            names, (_PACKAGE_DIRECTORY, *_PACKAGE_DIRECTORY.parents), strict=False
        )
    ]
    program = _PROGRAM.format(directories=directories, channel=channel, driver=os.getpid())
    devnull = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, *_INTERPRETER_FLAGS, "-c", program],
        stdin=devnull,
        stdout=devnull,
        stderr=devnull,
        pass_fds=(channel,),
        start_new_session=True,
        cwd=home,
    )
