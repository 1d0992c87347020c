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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

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
        self._warden: Leash | None = None
        self._open = False

    def __repr__(self) -> str:
        """How much goes on."""
        return f"<Commands, {len(self._jobs)} running, warden {self._warden.pid if self._warden else 'not running'}>"

    async def __aenter__(self) -> Self:
        """Start the warden; doesn't wait until it is up."""
        self._open = True
        self._warden = Leash(self._hear, self._lose)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the warden, and with it all commands still running; waits for that."""
        self._open = False
        if self._warden is not None:
            await self._warden.close()

    async def run(self, argv: Sequence[str], *, stdin: bytes | None = None, cwd: str | None = None,
                  env: Mapping[str, str] | None = None, keep: int = 1 << 20,
                  started: Callable[[int], None] | None = None) -> Finished:
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
            started: called with the process group's number as soon as there is one.

        Raises:
            CommandMissing: `argv[0]` isn't there.
            CommandRefused: it can't be started; the message says why.
            WorkerDied: the warden was killed; so were its commands. The next one gets a new warden.
        """  # fmt: skip
        job = _Job(next(self._numbers), argv, started)
        request = (wards.RUN, job.number, *_encoded(argv, stdin, cwd, env), keep)
        if not self._open:
            raise RuntimeError("commands run inside `async with Commands() as commands:`")
        if self._warden is None:
            self._warden = Leash(self._hear, self._lose)
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
            job.group = rest[0]
            self._tell_started(job)
        elif kind == wards.FINISHED:
            job.answer = rest
            self._settle(job)
        else:
            job.error = _refusal(job.argv, *rest)
            self._settle(job)

    def _tell_started(self, job: _Job) -> None:
        if job.started is not None:
            try:
                job.started(job.group)
            except Exception as error:  # noqa: BLE001 - raised by `run`, once the command is gone
                job.error = error
                if self._warden is not None:
                    self._warden.send((wards.END, job.number, GRACE))

    def _settle(self, job: _Job) -> None:
        del self._jobs[job.number]
        if not job.wake.done():
            job.wake.set_result(None)

    def _lose(self, how: str) -> None:
        """The warden is no more, and neither is anything it had started."""
        self._warden = None
        for job in list(self._jobs.values()):
            job.error = WorkerDied(f"{job.argv[0]}: the warden that watched over this command {how}; the command was killed")
            self._settle(job)


class _Job:
    """One command as the driver sees it."""

    __slots__ = ("answer", "argv", "error", "group", "number", "started", "wake")

    def __init__(self, number: int, argv: Sequence[str], started: Callable[[int], None] | None) -> None:
        self.number = number
        self.argv = argv
        self.started = started
        self.wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.group = 0
        self.answer: Sequence[Any] = ()
        self.error: BaseException | None = None
