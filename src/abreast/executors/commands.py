"""Runs child commands, each in a process group that ends with its `run` and with the driver.

Supervisor processes (`abreast.executors.supervisor.process`) start the commands, read their output
and report each end in one message. This costs the driver 30 us per command, where an asyncio
subprocess costs a millisecond. When the driver is killed, the supervisor knows every group and ends
it. One supervisor suffices, unless commands are so short that most of the time is spent starting
them: a start blocks the process that does it, so a second supervisor helps.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol, Self, TypeVar

from abreast.core.errors import AbreastError, WorkerDied
from abreast.core.frozen import record
from abreast.executors.supervisor import protocol
from abreast.executors.supervisor.client import SupervisorClient, SupervisorProcess
from abreast.executors.supervisor.protocol import Message

_T = TypeVar("_T")
GRACE = 0.3  # seconds between SIGTERM and SIGKILL for a command that is cancelled

_MAX_SUPERVISORS = 4
# With so many short commands about which a supervisor has sent no message yet, another supervisor
# is started.
_MAX_BACKLOG = 3


class CommandMissing(AbreastError, FileNotFoundError, retryable=False):
    """There is no command of that name."""


class CommandRefused(AbreastError, retryable=False):
    """The command can't be started.

    It isn't executable, or its arguments are too long or contain what arguments can't.
    """


@record(frozen=True, slots=True)
class Finished:
    """How a command ended, and what it wrote."""

    exit_code: int  # 0 to 255; minus the signal's number if one killed it
    stdout: bytes  # what was kept of it, from its beginning
    stderr: bytes
    stdout_bytes: int  # all that was written, kept or not
    stderr_bytes: int


class CommandRunner(Protocol):
    """Runs commands: `Commands` on this machine, `abreast.executors.ray.commands` on others."""

    def adopt_environment(self) -> None:
        """Give the following commands the environment as it is now."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        keep: int = 1 << 20,
        started: Callable[[int], None] | None = None,
        output: Callable[[bytes], None] | None = None,
        grace: float | None = None,
    ) -> Finished:
        """Run a command until it and its process group are gone; see `Commands.run`."""


class Commands:
    """Runs commands side by side, without a bound of its own.

    One for a run; it lives on the loop that enters it.

        async with Commands() as commands:
            finished = await commands.run(["git", "rev-parse", "HEAD"])
            print(finished.exit_code, finished.stdout)

    Commands run in the directory and environment that the driver had when this was entered, unless
    `cwd` or `env` says otherwise.
    """

    def __init__(
        self, early: SupervisorProcess | None = None, *, close_timeout: float = 2.0
    ) -> None:
        """Start nothing yet.

        Args:
            early: a supervisor that has been started already; it is used as the first one.
            close_timeout: seconds that a supervisor has to end all commands and itself; it gives
                itself half of the default (`supervisor.process.EXIT_TIMEOUT`).
        """
        self._close_timeout = close_timeout
        self._early = early
        self._numbers = count()
        self._jobs: dict[int, _Job] = {}
        self._supervisors: list[SupervisorClient] = []
        self._max_supervisors = 1
        self._last_was_short = False  # the last message was the FINISHED of a short command
        self._home: str | None = None
        self._environment: dict[str, str] = {}
        self._open = False

    def __repr__(self) -> str:
        return f"<Commands, {len(self._jobs)} running, {self._supervisors}>"

    async def __aenter__(self) -> Self:
        """Start a supervisor, without waiting until it is up."""
        self._environment = dict(os.environ)
        self._max_supervisors = min(_MAX_SUPERVISORS, _count_cpus())
        # The directory may be deleted or unreadable: then the supervisor's own is used.
        with contextlib.suppress(OSError):
            self._home = os.getcwd()  # noqa: PTH109 - a string is needed
        self._start_supervisor()
        self._open = True
        return self

    def adopt_environment(self) -> None:
        """Give the following commands the environment as it is now."""
        self._environment = dict(os.environ)
        for supervisor in self._supervisors:
            supervisor.send(self._hello_message())

    async def __aexit__(self, *_: object) -> None:
        """End the supervisors and all commands that still run; waits for that."""
        self._open = False
        # The stack closes every supervisor, also when this is cancelled or one of them fails.
        async with contextlib.AsyncExitStack() as stack:
            for supervisor in self._supervisors:
                supervisor.close_input()
                stack.push_async_callback(supervisor.close, self._close_timeout)

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        keep: int = 1 << 20,
        started: Callable[[int], None] | None = None,
        output: Callable[[bytes], None] | None = None,
        grace: float | None = None,
    ) -> Finished:
        """Run a command until it and its process group are gone.

        The values are arguments, never shell code.

        When this is cancelled, the group gets SIGTERM, after 0.3 s SIGKILL, and the cancellation
        goes on once nothing is left; a second cancellation sends SIGKILL at once. What a command
        leaves running in its group when it exits has 0.2 s to end by itself.

        Args:
            argv: the command, a path or a name found on the PATH, and its arguments.
            stdin: what it can read; nothing if None.
            cwd: where it runs.
            env: its whole environment.
            keep: how many bytes of stdout, and of stderr, are kept; the rest is only counted.
            started: called with the process group's number, once it has run for a few milliseconds.
            output: called with each piece of stdout as it comes, kept or not.
            grace: seconds between SIGTERM and SIGKILL, also on a second cancellation: for a command
                that ends what it has started in other process groups.

        Raises:
            CommandMissing: `argv[0]` doesn't exist.
            CommandRefused: it can't be started; the message says why.
            WorkerDied: the supervisor was killed, and so were its commands. The next command gets
                a new supervisor.
        """
        if not self._open:
            raise RuntimeError("commands run inside `async with Commands() as commands:`")
        if not argv:
            raise CommandRefused("a command needs a name")
        request = (
            protocol.RUN,
            next(self._numbers),
            *_encode_request(argv, cwd, self._environment, env),
            stdin,
            keep,
            output is not None,
        )
        job = _Job(request, self._choose_supervisor(), argv, cwd)
        job.started, job.output, job.grace = started, output, grace
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

    def _choose_supervisor(self) -> SupervisorClient:
        """Return the supervisor that is up and has the fewest commands to start.

        Starts another one if that number is high.
        """
        if not self._supervisors:
            return self._start_supervisor()
        supervisor = self._supervisors[0]
        for other in self._supervisors[1:]:
            if (other.ready, -other.unanswered) > (supervisor.ready, -supervisor.unanswered):
                supervisor = other
        if (
            self._last_was_short
            and supervisor.unanswered >= _MAX_BACKLOG
            and len(self._supervisors) < self._max_supervisors
        ):
            self._start_supervisor()
        return supervisor

    def _start_supervisor(self) -> SupervisorClient:
        started, self._early = self._early or SupervisorProcess(self._home), None
        supervisor = SupervisorClient(started, self._receive, self._fail_jobs)
        supervisor.send(self._hello_message())
        self._supervisors.append(supervisor)
        return supervisor

    def _hello_message(self) -> Message:
        return (
            protocol.HELLO,
            {os.fsencode(name): os.fsencode(value) for name, value in self._environment.items()},
        )

    async def _end(self, job: _Job) -> None:
        """Wait until a cancelled command is gone, also when this is cancelled again."""
        grace = GRACE
        while job.number in self._jobs:
            job.supervisor.send((protocol.END, job.number, job.grace or grace))
            grace = 0.0
            job.wake = asyncio.get_running_loop().create_future()
            with contextlib.suppress(asyncio.CancelledError):
                await job.wake

    def _receive(self, message: Message) -> None:
        kind, number, *rest = message
        job = self._jobs[number]
        if kind == protocol.OUTPUT:
            job.note_answer()
            if job.output is not None:
                self._call(job, job.output, rest[0])
            return
        self._last_was_short = kind == protocol.FINISHED and job.unanswered
        job.note_answer()
        if kind == protocol.STARTED:
            if job.started is not None:
                self._call(job, job.started, rest[0])
        elif kind == protocol.FINISHED:
            job.answer = rest
            self._settle(job)
        elif not self._send_elsewhere(job, rest[1]):
            job.refuse(*rest)
            self._settle(job)

    def _send_elsewhere(self, job: _Job, code: int) -> bool:
        """Send a command to another supervisor if this one has no processes or files left.

        It goes to one with running commands, whose end frees what is missing; False if there is
        none, or if the command has been moved before.
        """
        others = [
            other.supervisor
            for other in self._jobs.values()
            if other.supervisor is not job.supervisor
        ]
        if code not in protocol.RESOURCE_ERRORS or job.moved or not others:
            return False
        job.supervisor, job.moved = others[0], True
        job.send()
        return True

    @staticmethod
    def _call(job: _Job, callback: Callable[[_T], None], given: _T) -> None:
        """Call what the caller gave; if it raises, the command is ended."""
        if job.error is not None:
            return
        try:
            callback(given)
        except Exception as error:  # noqa: BLE001 - raised by `run`, once the command is gone
            job.error = error
            job.supervisor.send((protocol.END, job.number, job.grace or GRACE))

    def _settle(self, job: _Job) -> None:
        del self._jobs[job.number]
        if not job.wake.done():
            job.wake.set_result(None)

    def _fail_jobs(self, supervisor: SupervisorClient, how: str) -> None:
        """Fail the commands of a supervisor that has ended with all that it had started.

        `how` is one line, which the traceback of the supervisor may follow.
        """
        self._supervisors.remove(supervisor)
        how, _, trace = how.partition("\n")
        for job in [job for job in self._jobs.values() if job.supervisor is supervisor]:
            job.error = WorkerDied(
                f"{job.argv[0]}: the supervisor of this command {how}, and the command was killed"
            )
            if trace:
                job.error.add_note(trace)
            self._settle(job)


class _Job:
    __slots__ = (
        "answer",
        "argv",
        "cwd",
        "error",
        "grace",
        "moved",
        "number",
        "output",
        "request",
        "started",
        "supervisor",
        "unanswered",
        "wake",
    )

    def __init__(
        self, request: Message, supervisor: SupervisorClient, argv: Sequence[str], cwd: str | None
    ) -> None:
        self.number: int = request[1]
        self.request = request
        self.supervisor = supervisor
        self.argv = argv
        self.cwd = cwd
        self.started: Callable[[int], None] | None = None
        self.output: Callable[[bytes], None] | None = None
        self.grace: float | None = None
        self.unanswered = False
        self.moved = False
        self.wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.answer: Sequence[Any] = ()
        self.error: BaseException | None = None

    def send(self) -> None:
        """Send the request to the job's supervisor."""
        self.unanswered = True
        self.supervisor.unanswered += 1
        self.supervisor.send(self.request)

    def note_answer(self) -> None:
        """Note that a message about it has come."""
        if self.unanswered:
            self.unanswered = False
            self.supervisor.unanswered -= 1

    def refuse(self, stage: str, code: int, reason: str) -> None:
        """Set the error that says why the command can't be started."""
        name = self.argv[0]
        if stage == protocol.FIND and code == errno.ENOENT:
            self.error = CommandMissing(f"{name}: there is no such command")
        elif stage == protocol.ENTER:
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


def _encode_request(
    argv: Sequence[str], cwd: str | None, base: Mapping[str, str], env: Mapping[str, str] | None
) -> Message:
    """Encode arguments, directory, and the differences from the environment `base`.

    Raises CommandRefused for what can't be passed to a command.
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


def _count_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
