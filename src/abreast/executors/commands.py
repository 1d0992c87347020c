"""Child commands, many and quickly: each in a process group of its own that ends with its `run`, and with the driver.

The work is done by wardens (`abreast.executors.supervisor.process`), processes that start the
commands, read what they write and report each end in one message. It costs the driver 30 us per
command, where an asyncio subprocess costs a millisecond; and when the driver is killed, there is
someone left who knows every group and ends it. One warden will do, unless commands are so short
that starting them is all there is to do: a start holds up whoever starts it, so another helps.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Self

from abreast.core.errors import AbreastError, WorkerDied
from abreast.core.frozen import record
from abreast.executors.supervisor import protocol as wards
from abreast.executors.supervisor.client import Started, SupervisorClient
from abreast.executors.supervisor.protocol import Message

GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL for a command that is cancelled."""

_MOST_WARDENS = 4
# so many commands of which a warden has said nothing yet, all of them short: time for another
# warden
_BUSY = 3


class CommandMissing(AbreastError, FileNotFoundError):
    """There is no command of that name."""

    retryable = False


class CommandRefused(AbreastError):
    """The command can't be started: it isn't executable, its arguments are too long or can't be arguments."""

    retryable = False


@record(frozen=True, slots=True)
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
    """Runs commands side by side, without a bound of its own.

    One for a run; it lives on the loop that enters it.

        async with Commands() as commands:
            finished = await commands.run(["git", "rev-parse", "HEAD"])
            print(finished.exit_code, finished.stdout)

    Commands run in the directory and environment that the driver had when this was entered, unless
    told otherwise.
    """

    def __init__(self, early: Started | None = None) -> None:
        """Nothing is started before it is entered.

        `early` is a warden that was, and is then taken over.
        """
        self._early = early
        self._numbers = count()
        self._jobs: dict[int, _Job] = {}
        self._wardens: list[SupervisorClient] = []
        self._most = 1
        self._brief = False  # the last command that was heard of had ended within milliseconds
        self._home: str | None = None
        self._environment: dict[str, str] = {}
        self._open = False

    def __repr__(self) -> str:
        """How much goes on, and who watches over it."""
        return f"<Commands, {len(self._jobs)} running, {self._wardens}>"

    async def __aenter__(self) -> Self:
        """Start a warden; doesn't wait until it is up."""
        self._environment = dict(os.environ)
        self._most = min(_MOST_WARDENS, _cpus())
        with contextlib.suppress(
            OSError
        ):  # it is gone, or may not be known: then where the driver is by then
            self._home = os.getcwd()  # noqa: PTH109 - what is wanted is text
        self._hire()
        self._open = True
        return self

    def adopt_environment(self) -> None:
        """Give the commands that follow the environment as it is now."""
        self._environment = dict(os.environ)
        for warden in self._wardens:
            warden.send(self._hello())

    async def __aexit__(self, *_: object) -> None:
        """End the wardens, and with them all commands still running; waits for that."""
        self._open = False
        async with (
            contextlib.AsyncExitStack() as stack
        ):  # whoever cancels, and whatever goes wrong with one
            for warden in self._wardens:
                warden.hang_up()
                stack.push_async_callback(warden.close)

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
        """Run a command until it and its process group are gone.

        The values are arguments, never shell code.

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
        """
        if not self._open:
            raise RuntimeError("commands run inside `async with Commands() as commands:`")
        if not argv:
            raise CommandRefused("a command needs a name")
        request = (
            wards.RUN,
            next(self._numbers),
            *_encoded(argv, cwd, self._environment, env),
            stdin,
            keep,
        )
        job = _Job(request, self._pick(), argv, cwd)
        job.started = started
        self._jobs[job.number] = job
        job.send()
        try:
            await job.wake
        except asyncio.CancelledError:
            await self._end(job)
            raise
        if job.error is not None:
            raise job.error
        return Finished(*job.answer)

    def _pick(self) -> SupervisorClient:
        """Who gets the next command: of those who are up, who has the least to start.

        Hires, if that is much.
        """
        if not self._wardens:
            return self._hire()
        warden = self._wardens[0]
        for other in self._wardens[1:]:
            if (other.ready, -other.fresh) > (warden.ready, -warden.fresh):
                warden = other
        if self._brief and warden.fresh >= _BUSY and len(self._wardens) < self._most:
            self._hire()
        return warden

    def _hire(self) -> SupervisorClient:
        started, self._early = self._early or Started(self._home), None
        warden = SupervisorClient(started, self._hear, self._lose)
        warden.send(self._hello())
        self._wardens.append(warden)
        return warden

    def _hello(self) -> Message:
        return (
            wards.HELLO,
            {os.fsencode(name): os.fsencode(value) for name, value in self._environment.items()},
        )

    async def _end(self, job: _Job) -> None:
        """Wait until a cancelled command is gone, whoever else cancels."""
        grace = GRACE
        while job.number in self._jobs:
            job.warden.send((wards.END, job.number, grace))
            grace = 0.0
            job.wake = asyncio.get_running_loop().create_future()
            with contextlib.suppress(asyncio.CancelledError):
                await job.wake

    def _hear(self, message: Message) -> None:
        """The warden says something."""
        kind, number, *rest = message
        job = self._jobs[number]
        self._brief = kind == wards.FINISHED and job.unheard
        job.heard()
        if kind == wards.STARTED:
            self._tell_started(job, rest[0])
        elif kind == wards.FINISHED:
            job.answer = rest
            self._settle(job)
        elif not self._passed_on(job, rest[1]):
            job.refuse(*rest)
            self._settle(job)

    def _passed_on(self, job: _Job, code: int) -> bool:
        """Whether a command that there is nothing left for goes to a warden with commands whose end would help."""
        others = [other.warden for other in self._jobs.values() if other.warden is not job.warden]
        if code not in wards.SHORT_OF or job.passed_on or not others:
            return False
        job.warden, job.passed_on = others[0], True
        job.send()
        return True

    def _tell_started(self, job: _Job, group: int) -> None:
        if job.started is not None:
            try:
                job.started(group)
            except Exception as error:  # noqa: BLE001 - raised by `run`, once the command is gone
                job.error = error
                job.warden.send((wards.END, job.number, GRACE))

    def _settle(self, job: _Job) -> None:
        del self._jobs[job.number]
        if not job.wake.done():
            job.wake.set_result(None)

    def _lose(self, warden: SupervisorClient, how: str) -> None:
        """A warden is no more, and neither is anything it had started.

        `how` may go on with its traceback.
        """
        self._wardens.remove(warden)
        how, _, trace = how.partition("\n")
        for job in [job for job in self._jobs.values() if job.warden is warden]:
            job.error = WorkerDied(
                f"{job.argv[0]}: the warden of this command {how}, and the command was killed"
            )
            if trace:
                job.error.add_note(trace)
            self._settle(job)


class _Job:
    """One command as the driver sees it."""

    __slots__ = (
        "answer",
        "argv",
        "cwd",
        "error",
        "number",
        "passed_on",
        "request",
        "started",
        "unheard",
        "wake",
        "warden",
    )

    def __init__(
        self, request: Message, warden: SupervisorClient, argv: Sequence[str], cwd: str | None
    ) -> None:
        self.number: int = request[1]
        self.request = request
        self.warden = warden
        self.argv = argv
        self.cwd = cwd
        self.started: Callable[[int], None] | None = None
        self.unheard = False
        self.passed_on = False
        self.wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer: Sequence[Any] = ()
        self.error: BaseException | None = None

    def send(self) -> None:
        """Have its warden start it."""
        self.unheard = True
        self.warden.fresh += 1
        self.warden.send(self.request)

    def heard(self) -> None:
        """Its warden has said something about it."""
        if self.unheard:
            self.unheard = False
            self.warden.fresh -= 1

    def refuse(self, stage: str, code: int, reason: str) -> None:
        """It can't be started; keep the error that says why."""
        name = self.argv[0]
        if stage == wards.FIND and code == errno.ENOENT:
            self.error = CommandMissing(f"{name}: there is no such command")
        elif stage == wards.ENTER:
            self.error = CommandRefused(f"{name}: can't run in {self.cwd}: {reason}")
        else:
            self.error = CommandRefused(
                f"{name}: {_REASONS.get(code, 'it could not be started')} ({reason})"
            )


_REASONS = {
    errno.EACCES: "it is not executable",
    errno.ENOENT: "the interpreter that its first line names is missing",
    errno.ENOEXEC: "it is neither a program nor a script that names its interpreter",
    errno.E2BIG: "its arguments and environment are too long",
}


def _encoded(
    argv: Sequence[str], cwd: str | None, base: Mapping[str, str], env: Mapping[str, str] | None
) -> Message:
    """Arguments, directory, and what differs from the base's environment.

    CommandRefused for what can't be one.
    """
    encode = os.fsencode
    changed: dict[bytes, bytes] = {}
    removed: list[bytes] = []
    try:
        words = [encode(word) for word in argv]
        place = None if cwd is None else encode(cwd)
        if env is not None:
            changed = {
                encode(name): encode(value)
                for name, value in env.items()
                if base.get(name) != value
            }
            removed = [encode(name) for name in base.keys() - env.keys()]
    except UnicodeEncodeError as error:
        raise CommandRefused(
            f"{argv[0]!r}: {error.object!r:.80} can't be given to a command"
        ) from error
    if b"\0" in b"".join((*words, place or b"", *changed.keys(), *changed.values())):
        raise CommandRefused(f"{argv[0]!r}: a NUL character can't be given to a command")
    return words, place, changed, removed


def _cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
