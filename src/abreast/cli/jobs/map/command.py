"""Runs a command for each item: a child process whose exit code decides success or failure."""

from __future__ import annotations

import os
import resource
import signal
from typing import TYPE_CHECKING, Any, Final

from abreast.assembly.process_groups import ProcessGroups
from abreast.cli.errors import UsageError, one_line
from abreast.cli.jobs.map.job import MapJob
from abreast.executors.supervisor.protocol import find
from abreast.run.current import current_item

if TYPE_CHECKING:
    from abreast.executors.commands import CommandRunner, Finished

_STDERR_TAIL: Final = 200  # characters of stderr in an error message
_FILES_PER_CHILD: Final = 4  # open files: the ends of its pipes, and what waits for its exit
_OWN_FILES: Final = 64  # open files of this process itself


class CommandFailed(Exception):
    """A command ended with an exit code other than 0; its output is in `details`."""

    def __init__(self, sentence: str, details: dict[str, object]) -> None:
        """Keep the command's output, so that it is recorded too."""
        super().__init__(sentence)
        self.details = details


class OutputTooLong(CommandFailed):
    """A command wrote more to stdout than is kept, so its recorded output is incomplete."""

    retryable = False


class CommandWork:
    """Runs the job's command for an item; the value is the exit code and the output."""

    def __init__(self, job: MapJob, commands: CommandRunner, groups: ProcessGroups) -> None:
        """Start children through `commands`, and record their process groups in `groups`."""
        self._job = job
        self._commands = commands
        self._groups = groups
        self._cwd = None if job.cwd == os.getcwd() else job.cwd  # noqa: PTH109 - None saves the supervisor a chdir

    async def __call__(self, value: Any) -> dict[str, object]:  # noqa: ANN401 - any JSON value
        """Run the command once; raises `CommandFailed` for an exit code other than 0."""
        return await self.run_in(value, self._cwd)

    async def run_in(self, value: Any, cwd: str | None) -> dict[str, object]:  # noqa: ANN401 - as above
        """Run it in a directory; None for the current one."""
        item = current_item()
        if item is None:
            raise RuntimeError("a command runs inside an item of a map")
        group = 0

        def started(pgid: int) -> None:
            nonlocal group
            group = pgid
            self._groups.started(item, pgid)

        arguments = self._job.arguments.fill(value, item)
        try:
            finished = await self._commands.run(
                arguments, cwd=cwd, keep=self._job.keep, started=started
            )
        finally:
            self._groups.ended(group)
        return _command_value(finished, self._job.keep)


def _command_value(finished: Finished, keep: int) -> dict[str, object]:
    output: dict[str, object] = {
        "exit_code": finished.exit_code,
        "stdout": _as_text(finished.stdout),
        "stderr": _as_text(finished.stderr),
    }
    if finished.stdout_bytes > len(finished.stdout):
        output["stdout_bytes"] = finished.stdout_bytes
    if finished.stderr_bytes > len(finished.stderr):
        output["stderr_bytes"] = finished.stderr_bytes
    if finished.exit_code != 0:
        raise CommandFailed(_failure_sentence(finished), output)
    if "stdout_bytes" in output:
        most = f"{finished.stdout_bytes} bytes to stdout, and {keep} are kept"
        raise OutputTooLong(f"it wrote {most}; raise --keep, or let it write to a file", output)
    return output


def _failure_sentence(finished: Finished) -> str:
    code = finished.exit_code
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        sentence = f"killed by {name}"
    else:
        sentence = f"exit code {code}"
    lines = finished.stderr[-4 * _STDERR_TAIL :].decode("utf-8", "replace").strip().splitlines()
    tail = one_line(lines[-1])[-_STDERR_TAIL:] if lines else ""
    return f"{sentence}: {tail}" if tail else sentence


def _as_text(output: bytes) -> str | bytes:
    """UTF-8 output as text, which is smaller in the store and readable in an export."""
    try:
        return output.decode()
    except UnicodeDecodeError:
        return output


def check_command(job: MapJob) -> None:
    """Raise `UsageError` if the command can't work for any item."""
    program = job.command[0]
    if not program or "\0" in program:
        raise UsageError("the command's name is empty; write: abreast map -- COMMAND {} < items")
    if job.executor != "local":
        return  # the nodes may have other programs than this machine
    if "{" not in program:
        parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
        # A relative part of the PATH, and a relative program, start at the job's directory.
        places = os.pathsep.join(os.path.join(job.cwd, part) for part in parts)  # noqa: PTH118 - joined as texts
        path = os.path.join(job.cwd, program) if "/" in program else program  # noqa: PTH118 - joined as texts
        try:
            find(os.fsencode(path), os.fsencode(places), None)
        except OSError:
            where = "is not a program that can be run" if "/" in program else "is not on the PATH"
            raise UsageError(
                f"there is no command {program!r} (it {where}); check its spelling"
            ) from None
    _raise_file_limit(job.width)


def _raise_file_limit(width: int) -> None:
    """Raise this process's limit of open files to what `width` children need.

    Raises `UsageError` if the hard limit is lower.
    """
    needed = _OWN_FILES + _FILES_PER_CHILD * width
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < needed:
            fits = (most - _OWN_FILES) // _FILES_PER_CHILD
            raise UsageError(
                f"--width: {width} commands at once need more open files than the {hard} allowed; "
                f"at most {fits} fit"
            )
