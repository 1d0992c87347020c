"""One worker process, as its driver sees it: started, asked, hung up on, killed, reaped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from abreast.executors.worker import HEADER

_CHUNK = 1 << 18
_LAST_WORDS = 0.5  # seconds between the end of what a worker has to say and its end

_ROOT = str(Path(__file__).parents[2])
# By `-c` and not `-m`: it works wherever the driver found the package, and the user's directory
# can't get in between.
_START = "import sys; sys.path.insert(0, {root!r}); from abreast.executors.worker import main; main({ends})"


class WorkerProcess:
    """A process in a session of its own, which ends as a group: itself and all that it started and left there.

    Everything happens on the loop: `ask` sends, `reply` is the answer (None when there is none because it died), and
    `ended` is done when the process is gone, reaped, and nothing of it is left open here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, flags: Sequence[str], setup: bytes) -> None:
        """Start it. It must be started by a thread that lives as long as the driver: with that thread it would die."""
        self.reply: asyncio.Future[bytearray | None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._writing = False
        self._overdue: asyncio.TimerHandle | None = None
        with contextlib.ExitStack() as undo:
            self._socket, theirs = socket.socketpair()
            undo.callback(self._socket.close)
            with theirs:
                lifeline, self._lifeline = os.pipe()
                undo.callback(os.close, self._lifeline)
                try:
                    self._process = _start(flags, theirs.fileno(), lifeline)
                finally:
                    os.close(lifeline)
            undo.callback(self._process.wait)
            undo.callback(self.kill)
            self._pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
            undo.pop_all()
        self._socket.setblocking(False)  # noqa: FBT003 - it has no keyword
        loop.add_reader(self._socket, self._read)
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, self._end)
        self._send(setup)

    def __repr__(self) -> str:
        """Its number and what it does."""
        state = "ended" if self.ended.done() else "idle" if self.reply.done() else "busy"
        return f"<worker process {self.pid}, {state}>"

    @property
    def pid(self) -> int:
        """Its process id, and its group's."""
        return self._process.pid

    @property
    def how(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return (
            f"was killed by {name}{', perhaps because memory ran out' if name == 'SIGKILL' else ''}"
        )

    def ask(self, request: bytes) -> bool:
        """Send a request; `reply` will have the answer.

        False if it can't be reached, and so hasn't seen any of it.
        """
        self.reply = self._loop.create_future()
        if self.ended.done():
            self.reply.set_result(None)
            return False
        return self._send(request)

    def hang_up(self) -> None:
        """Let it end by itself, now that nothing more is asked of it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it and its whole group at once; `ended` tells when that has happened."""
        # Until it is reaped its number can't be another's.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    # --- the loop's side ------------------------------------------------------------------------------------------

    def _send(self, message: bytes) -> bool:
        self._outbox += HEADER.pack(len(message))
        self._outbox += message
        return self._write()

    def _write(self) -> bool:
        try:
            del self._outbox[: self._socket.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:  # it closed its end: that it ended is noticed elsewhere
            self._outbox.clear()
            self._watch_for_room()
            return False
        self._watch_for_room()
        return True

    def _watch_for_room(self) -> None:
        """Have `_write` called when the socket takes more, for as long as there is more."""
        if self._writing != bool(self._outbox):
            self._writing = not self._writing
            if self._writing:
                self._loop.add_writer(self._socket, self._write)
            else:
                self._loop.remove_writer(self._socket)

    def _read(self) -> bool:
        """Take in what has come; whether there may be more."""
        try:
            chunk = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._lose_contact()
            return False
        inbox = self._inbox
        inbox += chunk
        if len(inbox) >= HEADER.size:
            size = HEADER.size + HEADER.unpack_from(inbox)[0]
            if len(inbox) >= size:
                reply = inbox[HEADER.size : size]
                inbox.clear()  # it is asked one thing at a time
                if not self.reply.done():
                    self.reply.set_result(reply)
        return True

    def _lose_contact(self) -> None:
        """It closed its end. Normally it is about to end.

        If an item closed the socket under us, it is made to.
        """
        self._loop.remove_reader(self._socket)
        if self._pidfd is None:
            self._end()
        elif self._overdue is None:
            self._overdue = self._loop.call_later(_LAST_WORDS, self.kill)

    def _end(self) -> None:
        """The process has ended, or is about to: end what it left in its group, and clear away what we have of it."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            while self._read():  # it may have answered before it died
                pass
        if self._overdue is not None:
            self._overdue.cancel()
        self.kill()
        self._process.wait()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        os.close(self._lifeline)
        if not self.reply.done():
            self.reply.set_result(None)
        self.ended.set_result(None)


def _start(flags: Sequence[str], channel: int, lifeline: int) -> subprocess.Popen[bytes]:
    start = _START.format(root=_ROOT, ends=f"{channel}, {lifeline}, {os.getpid()}")
    command = [sys.executable, *flags, "-P", "-c", start]
    return subprocess.Popen(command, pass_fds=(channel, lifeline), start_new_session=True)
