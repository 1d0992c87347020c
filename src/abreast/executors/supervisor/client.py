"""The driver's end of a warden (`abreast.executors.supervisor.process`): starts it, talks to it, and notices its end."""

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

from abreast.executors.supervisor import protocol as wards
from abreast.executors.supervisor.protocol import Message

_CLOSING = 2.0  # s; the warden gives itself half of that
_CHUNK = 1 << 16  # more than 128 KiB at once would be mapped, and unmapped, every time
# Stand-ins for the packages: the real ones import all of abreast, which takes longer than the
# warden's whole start.
_PROGRAM = """
import sys
for name, place in {places!r}:
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [place]
from abreast.executors.supervisor.process import main
main({line}, {driver})
"""
_FLAGS = ("-I", "-S")
_HERE = Path(__file__).parent


class Started:
    """A warden's process and our end of the line to it.

    It can be started before there is a loop.
    """

    def __init__(self, home: str | None) -> None:
        """Start it in directory `home`, where commands run that don't say where.

        Doesn't wait until it is up.
        """
        self.line, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(self.line.close)
            self.process = _start_warden(theirs.fileno(), home)
            undo.pop_all()

    def end(self) -> int:
        """Leave nothing of it, nor of what it has started; its exit code."""
        self.line.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        wards.sweep(self.process.pid)  # before the warden is reaped, and its number free for others
        return self.process.wait()


class SupervisorClient:
    """A warden as its driver knows it."""

    def __init__(
        self,
        started: Started,
        hear: Callable[[Message], None],
        lose: Callable[[SupervisorClient, str], None],
    ) -> None:
        """Take it over, on the running loop.

        Args:
            started: its process; may still be starting.
            hear: called with what it says about a command.
            lose: called once it is no more, and neither is anything that it had started, with how it ended.
        """
        self._started = started
        self._hear = hear
        self._lose = lose
        self.ready = False  # it has said that it is up
        self.fresh = 0  # commands that it was sent, and of which nothing was heard yet
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._inbox = bytearray()
        self._unsent = bytearray()
        self._full = False  # the line takes no more for now
        self._outbox: list[Message] = []
        self._how = ""
        self._socket = started.line
        self.pid = started.process.pid
        self._socket.setblocking(False)  # noqa: FBT003 - it has no keyword
        self._loop.add_reader(self._socket, self._read)

    def __repr__(self) -> str:
        """Its process, and whether it lives."""
        return f"<warden {self.pid}, {'ended' if self._ended.done() else 'running'}>"

    def send(self, message: Message) -> None:
        """Send a message at the end of this turn of the loop, with the others of the turn."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(message)

    def hang_up(self) -> None:
        """Have the warden end its commands and itself."""
        self._how = "was closed"
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def close(self) -> None:
        """Wait until it has ended, after `hang_up`, whoever cancels.

        One that doesn't is made to.
        """
        cancelled = None
        while not self._ended.done():
            try:
                await asyncio.wait([self._ended], timeout=_CLOSING)
                self._end()
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _flush(self) -> None:
        self._unsent += wards.pack(self._outbox)
        self._outbox = []
        self._write()

    def _write(self) -> None:
        """Write what the line takes; never waits, as the warden may be waiting for us to read."""
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it has ended, of which `_read` hears
            self._unsent.clear()
        full = bool(self._unsent)
        if full and not self._full:
            self._loop.add_writer(self._socket, self._write)
        elif self._full and not full and not self._ended.done():
            self._loop.remove_writer(self._socket)
        self._full = full

    def _read(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._inbox += data
        for message in wards.unpack(self._inbox):
            if message[0] == wards.BROKEN:
                self._how = "\n".join(message[1:])
            elif message[0] == wards.READY:
                self.ready = True
            else:
                self._hear(message)
        if not data:
            self._end()

    def _end(self) -> None:
        """It has ended, or must: leave nothing of it."""
        if self._ended.done():
            return
        self._ended.set_result(None)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        code = self._started.end()
        self._lose(
            self,
            self._how
            or (f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"),
        )


def _start_warden(line: int, home: str | None) -> subprocess.Popen[bytes]:
    names = ("abreast.executors.supervisor", "abreast.executors", "abreast")
    places = [
        (name, str(place)) for name, place in zip(names, (_HERE, *_HERE.parents), strict=False)
    ]
    program = _PROGRAM.format(places=places, line=line, driver=os.getpid())
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, *_FLAGS, "-c", program],
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
        pass_fds=(line,),
        start_new_session=True,
        cwd=home,
    )
