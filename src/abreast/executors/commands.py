"""Child commands, many and quickly: each in a process group of its own that ends with its `run`, and with the driver.

The work is done by a warden (`abreast.executors.warden`), a process that starts the commands, reads what they write and
reports each end in one message. It costs the driver 30 us per command, where an asyncio subprocess costs a millisecond;
and when the driver is killed, there is someone left who knows every group and ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self

from abreast.core.errors import AbreastError, WorkerDied
from abreast.executors import wards
from abreast.executors.wards import Message

GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL for a command that is cancelled."""

_CLOSING = 2.0  # s; the warden gives itself half of that
_CHUNK = 1 << 18
# Stand-ins for the packages: the real ones import all of abreast, which takes longer than the warden's whole start.
_PROGRAM = """
import sys
for name, place in {places!r}:
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [place]
from abreast.executors.warden import main
main({line}, {driver})
"""
_FLAGS = ("-I", "-S")
_HERE = Path(__file__).parent


class CommandMissing(AbreastError, FileNotFoundError):
    """There is no command of that name."""

    retryable = False


class CommandRefused(AbreastError):
    """The command can't be started: it isn't executable, its arguments are too long or can't be arguments."""

    retryable = False


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a command."""

    exit_code: int
    """0 to 255; minus the signal's number if one killed it."""
    stdout: bytes
    """What was kept of it, from its beginning."""
    stderr: bytes
    stdout_bytes: int
    """What was written in all, kept or not."""
    stderr_bytes: int


class Commands:
    """Runs commands side by side, without a bound of its own. One for a run; it lives on the loop that enters it.

        async with Commands() as commands:
            finished = await commands.run(["git", "rev-parse", "HEAD"])
            print(finished.exit_code, finished.stdout)

    Commands run in the directory and environment that the driver had when this was entered, unless told otherwise.
    """

    def __init__(self) -> None:
        """Nothing is started before it is entered."""
        self._numbers = count()
        self._jobs: dict[int, _Job] = {}
        self._warden: _Leash | None = None
        self._environment: dict[str, str] = {}
        self._open = False

    def __repr__(self) -> str:
        """How much goes on, and who watches over it."""
        return f"<Commands, {len(self._jobs)} running, {self._warden}>"

    async def __aenter__(self) -> Self:
        """Start the warden; doesn't wait until it is up."""
        self._environment = dict(os.environ)
        self._warden = self._hire()
        self._open = True
        return self

    def adopt_environment(self) -> None:
        """Give the commands that follow the environment as it is now."""
        self._environment = dict(os.environ)
        if self._warden is not None:
            self._warden.send(self._hello())

    async def __aexit__(self, *_: object) -> None:
        """End the warden, and with it all commands still running; waits for that."""
        self._open = False
        if self._warden is not None:
            await self._warden.close()

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        keep: int = 1 << 20,
        started: Callable[[int], None] | None = None,
    ) -> Finished:
        """Run a command until it and its process group are gone; the values are arguments, never shell code.

        When this is cancelled, the group gets SIGTERM, after 0.3 s SIGKILL, and the cancellation goes on once nothing
        is left; a second cancellation is SIGKILL at once. What a command leaves running in its group when it exits has
        0.2 s to end by itself.

        Args:
            argv: the command, a path or a name found on the PATH, and its arguments.
            stdin: what it can read; nothing if None.
            cwd: where it runs.
            env: its whole environment.
            keep: how many bytes of stdout, and of stderr, are kept; the rest is only counted.
            started: called with the process group's number, once it has lived for a few milliseconds.

        Raises:
            CommandMissing: `argv[0]` isn't there.
            CommandRefused: it can't be started; the message says why.
            WorkerDied: the warden was killed; so were its commands. The next one gets a new warden.
        """  # fmt: skip
        if not self._open:
            raise RuntimeError("commands run inside `async with Commands() as commands:`")
        if not argv:
            raise CommandRefused("a command needs a name")
        job = _Job(next(self._numbers), argv, cwd, started)
        request = (wards.RUN, job.number, *_encoded(argv, cwd, self._environment, env), stdin, keep)
        if self._warden is None:
            self._warden = self._hire()
        self._jobs[job.number] = job
        self._warden.send(request)
        try:
            await job.wake
        except asyncio.CancelledError:
            await self._end(job)
            raise
        if job.error is not None:
            raise job.error
        return Finished(*job.answer)

    def _hire(self) -> _Leash:
        warden = _Leash(self._hear, self._lose)
        warden.send(self._hello())
        return warden

    def _hello(self) -> Message:
        return (wards.HELLO, {os.fsencode(name): os.fsencode(value) for name, value in self._environment.items()})

    async def _end(self, job: _Job) -> None:
        """Wait until a cancelled command is gone, whoever else cancels."""
        grace = GRACE
        while job.number in self._jobs:
            if self._warden is not None:
                self._warden.send((wards.END, job.number, grace))
            grace = 0.0
            job.wake = asyncio.get_running_loop().create_future()
            with contextlib.suppress(asyncio.CancelledError):
                await job.wake

    def _hear(self, message: Message) -> None:
        """The warden says something."""
        kind, number, *rest = message
        job = self._jobs[number]
        if kind == wards.STARTED:
            self._tell_started(job, rest[0])
        elif kind == wards.FINISHED:
            job.answer = rest
            self._settle(job)
        else:
            job.refuse(*rest)
            self._settle(job)

    def _tell_started(self, job: _Job, group: int) -> None:
        if job.started is not None:
            try:
                job.started(group)
            except Exception as error:  # noqa: BLE001 - raised by `run`, once the command is gone
                job.error = error
                if self._warden is not None:
                    self._warden.send((wards.END, job.number, GRACE))

    def _settle(self, job: _Job) -> None:
        del self._jobs[job.number]
        if not job.wake.done():
            job.wake.set_result(None)

    def _lose(self, how: str) -> None:
        """The warden is no more, and neither is anything it had started; `how` may go on with its traceback."""
        self._warden = None
        how, _, trace = how.partition("\n")
        for job in list(self._jobs.values()):
            job.error = WorkerDied(f"{job.argv[0]}: the warden of this command {how}, and the command was killed")
            if trace:
                job.error.add_note(trace)
            self._settle(job)


class _Job:
    """One command as the driver sees it."""

    __slots__ = ("answer", "argv", "cwd", "error", "number", "started", "wake")

    def __init__(
        self, number: int, argv: Sequence[str], cwd: str | None, started: Callable[[int], None] | None
    ) -> None:
        self.number = number
        self.argv = argv
        self.cwd = cwd
        self.started = started
        self.wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer: Sequence[Any] = ()
        self.error: BaseException | None = None

    def refuse(self, stage: str, code: int, reason: str) -> None:
        """It can't be started; keep the error that says why."""
        name = self.argv[0]
        if stage == wards.FIND and code == errno.ENOENT:
            self.error = CommandMissing(f"{name}: there is no such command")
        elif stage == wards.ENTER:
            self.error = CommandRefused(f"{name}: can't run in {self.cwd}: {reason}")
        else:
            self.error = CommandRefused(f"{name}: {_REASONS.get(code, 'it could not be started')} ({reason})")


_REASONS = {
    errno.EACCES: "it is not executable",
    errno.ENOENT: "the interpreter that its first line names is missing",
    errno.ENOEXEC: "it is neither a program nor a script that names its interpreter",
    errno.E2BIG: "its arguments and environment are too long",
}


def _encoded(argv: Sequence[str], cwd: str | None, base: Mapping[str, str], env: Mapping[str, str] | None) -> Message:
    """Arguments, directory, and what differs from the base's environment; CommandRefused for what can't be one."""
    encode = os.fsencode
    try:
        words = [encode(word) for word in argv]
        place = None if cwd is None else encode(cwd)
        changed = {encode(name): encode(value) for name, value in (env or {}).items() if base.get(name) != value}
        removed = [] if env is None else [encode(name) for name in base.keys() - env.keys()]
    except UnicodeEncodeError as error:
        raise CommandRefused(f"{argv[0]!r}: {error.object!r:.80} can't be given to a command") from error
    if b"\0" in b"".join((*words, place or b"", *changed.keys(), *changed.values())):
        raise CommandRefused(f"{argv[0]!r}: a NUL character can't be given to a command")
    return words, place, changed, removed


class _Leash:
    """The driver's end of a warden: starts it, talks to it, and notices its end."""

    def __init__(self, hear: Callable[[Message], None], lose: Callable[[str], None]) -> None:
        self._hear = hear
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._inbox = bytearray()
        self._unsent = bytearray()
        self._outbox: list[Message] = []
        self._how = ""
        self._socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(self._socket.close)
            self._process = _start_warden(theirs.fileno())
            undo.pop_all()
        self.pid = self._process.pid
        self._socket.setblocking(False)  # noqa: FBT003 - it has no keyword
        self._loop.add_reader(self._socket, self._read)

    def __repr__(self) -> str:
        return f"<warden {self.pid}, {'ended' if self._ended.done() else 'running'}>"

    def send(self, message: Message) -> None:
        """Send a message at the end of this turn of the loop, with the others of the turn."""
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(message)

    async def close(self) -> None:
        """Have the warden end its commands and itself, and wait for it, whoever cancels."""
        self._how = "was closed"
        cancelled = None
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
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
        if self._unsent:
            self._loop.add_writer(self._socket, self._write)
        elif not self._ended.done():
            self._loop.remove_writer(self._socket)

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
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        wards.sweep(self.pid)  # before the warden is reaped, and its number free for others
        code = self._process.wait()
        self._lose(self._how or (f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}"))


def _start_warden(line: int) -> subprocess.Popen[bytes]:
    places = [("abreast", str(_HERE.parent)), ("abreast.executors", str(_HERE))]
    program = _PROGRAM.format(places=places, line=line, driver=os.getpid())
    nothing = subprocess.DEVNULL
    return subprocess.Popen(
        [sys.executable, *_FLAGS, "-c", program],
        stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=(line,), start_new_session=True,
    )  # fmt: skip
