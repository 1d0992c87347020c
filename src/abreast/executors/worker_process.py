"""One worker process on the driver's side: starts it, sends requests, kills and reaps it."""

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from abreast.executors.worker_channel import ANSWER, ASK, HEADER, REPLY

_READ_BYTES = 1 << 18
_EXIT_TIMEOUT = 0.5  # seconds between a worker closing its socket and SIGKILL

_ROOT = str(Path(__file__).parents[2])
# By `-c` and not `-m`: it works wherever the driver found the package, and modules in the user's
# directory can't shadow ours.
_PROGRAM = (
    "import sys; sys.path.insert(0, {root!r}); "
    "from abreast.executors.worker import main; main({arguments})"
)


class WorkerProcess:
    """A process in a session of its own, which ends together with all that it left in its group.

    Everything happens on the loop. `ask` sends; `reply` is the answer, or None if the process died
    first. `ended` is done when the process is reaped and nothing of it is left open here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, flags: Sequence[str], setup: bytes) -> None:
        """Start it.

        The calling thread must live as long as the driver: the worker dies when that thread ends.
        """
        self.reply: asyncio.Future[bytearray | None] = loop.create_future()
        # Called with the number and the pickled call of what the current item asks of its driver.
        self.on_ask: Callable[[int, bytes], None] | None = None
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._writing = False
        self._exit_timer: asyncio.TimerHandle | None = None
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
            self.pid = self._process.pid  # its group's too
            undo.callback(self._process.wait)
            undo.callback(self.kill)
            self._pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None
            undo.pop_all()
        self._socket.setblocking(False)  # noqa: FBT003 - it has no keyword
        loop.add_reader(self._socket, self._read)
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, self._end)
        self._send(setup, REPLY)

    def __repr__(self) -> str:
        state = "ended" if self.ended.done() else "idle" if self.reply.done() else "busy"
        return f"<worker process {self.pid}, {state}>"

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

        False if the process can't be reached, and so hasn't received any of it.
        """
        self.reply = self._loop.create_future()
        if self.ended.done():
            self.reply.set_result(None)
            return False
        return self._send(request, REPLY)

    def answer(self, number: int, reply: bytes) -> None:
        """Answer what the current item asked."""
        if not self.ended.done():
            self._send(pickle.dumps((number, reply)), ANSWER)

    def close_input(self) -> None:
        """Let it end by itself, as no more requests follow."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it and its whole group at once; `ended` is done when that has happened."""
        # Its process id can't be reused before it is reaped.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    # --- callbacks of the loop

    def _send(self, message: bytes, kind: int) -> bool:
        self._outbox += HEADER.pack(len(message), kind)
        self._outbox += message
        return self._write()

    def _write(self) -> bool:
        try:
            del self._outbox[: self._socket.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:  # it closed its end; `_read` or the pidfd notices its exit
            self._outbox.clear()
            self._update_writer()
            return False
        self._update_writer()
        return True

    def _update_writer(self) -> None:
        """Have `_write` called when the socket takes more, for as long as there is more."""
        if self._writing != bool(self._outbox):
            self._writing = not self._writing
            if self._writing:
                self._loop.add_writer(self._socket, self._write)
            else:
                self._loop.remove_writer(self._socket)

    def _read(self) -> bool:
        """Read what has come; return whether there may be more."""
        try:
            chunk = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            chunk = b""
        if not chunk:
            self._expect_exit()
            return False
        inbox = self._inbox
        inbox += chunk
        while len(inbox) >= HEADER.size:
            length, kind = HEADER.unpack_from(inbox)
            end = HEADER.size + length
            if len(inbox) < end:
                break
            message = inbox[HEADER.size : end]
            del inbox[:end]
            if kind == ASK:
                if self.on_ask is not None:
                    self.on_ask(*pickle.loads(message))  # noqa: S301 - from a process of ours
            elif not self.reply.done():
                self.reply.set_result(message)
        return True

    def _expect_exit(self) -> None:
        """Wait for the exit of a process that closed its end, and kill it if it takes too long.

        It doesn't exit by itself if an item has closed the socket.
        """
        self._loop.remove_reader(self._socket)
        if self._pidfd is None:
            self._end()
        elif self._exit_timer is None:
            self._exit_timer = self._loop.call_later(_EXIT_TIMEOUT, self.kill)

    def _end(self) -> None:
        """Kill what the ended process left in its group, and release everything held for it."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            while self._read():  # it may have answered before it died
                pass
        if self._exit_timer is not None:
            self._exit_timer.cancel()
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
    program = _PROGRAM.format(root=_ROOT, arguments=f"{channel}, {lifeline}, {os.getpid()}")
    command = [sys.executable, *flags, "-P", "-c", program]
    return subprocess.Popen(command, pass_fds=(channel, lifeline), start_new_session=True)
