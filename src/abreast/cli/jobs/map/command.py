"""An item's work as a command: a child process whose exit code says whether it is done."""

from __future__ import annotations

import os
import resource
import signal
from typing import TYPE_CHECKING, Any, Final

from abreast.cli.errors import UsageError, one_line
from abreast.cli.jobs.map.job import MapJob
from abreast.cli.jobs.map.process_groups import Groups
from abreast.executors.supervisor.protocol import find
from abreast.run.current import current_item

if TYPE_CHECKING:
    from abreast.executors.commands import Commands, Finished

_TAIL: Final = 200  # characters of stderr in a message
_PER_CHILD: Final = 4  # open files: its ends of the pipes, and what watches it
_OWN: Final = 64


class CommandFailed(Exception):
    """A command ended with another exit code than 0; what it wrote is in `details`."""

    def __init__(self, sentence: str, details: dict[str, object]) -> None:
        """Keep what the command wrote, so that it is recorded too."""
        super().__init__(sentence)
        self.details = details


class OutputTooLong(CommandFailed):
    """A command wrote more to stdout than is kept, so that its output would not be all of it."""

    retryable = False


class CommandWork:
    """Runs the job's command for an item; its value is the exit code and what was written."""

    def __init__(self, job: MapJob, commands: Commands, groups: Groups) -> None:
        """With the children of `commands`."""
        self._job = job
        self._commands = commands
        self._groups = groups
        self._cwd = None if job.cwd == os.getcwd() else job.cwd  # noqa: PTH109 - None spares the warden a step

    async def __call__(self, value: Any) -> dict[str, object]:  # noqa: ANN401 - an item is what its line says
        """Run it once; `CommandFailed` for any exit code but 0."""
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
                arguments, cwd=self._cwd, keep=self._job.keep, started=started
            )
        finally:
            self._groups.ended(group)
        return _judged(finished, self._job.keep)


def _judged(finished: Finished, keep: int) -> dict[str, object]:
    wrote: dict[str, object] = {
        "exit_code": finished.exit_code,
        "stdout": _kept(finished.stdout),
        "stderr": _kept(finished.stderr),
    }
    if finished.stdout_bytes > len(finished.stdout):
        wrote["stdout_bytes"] = finished.stdout_bytes
    if finished.stderr_bytes > len(finished.stderr):
        wrote["stderr_bytes"] = finished.stderr_bytes
    if finished.exit_code != 0:
        raise CommandFailed(_how(finished), wrote)
    if "stdout_bytes" in wrote:
        most = f"{finished.stdout_bytes} bytes to stdout, and {keep} are kept"
        raise OutputTooLong(f"it wrote {most}; raise --keep, or let it write to a file", wrote)
    return wrote


def _how(finished: Finished) -> str:
    code = finished.exit_code
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        said = f"killed by {name}"
    else:
        said = f"exit code {code}"
    lines = finished.stderr[-4 * _TAIL :].decode("utf-8", "replace").strip().splitlines()
    tail = one_line(lines[-1])[-_TAIL:] if lines else ""
    return f"{said}: {tail}" if tail else said


def _kept(wrote: bytes) -> str | bytes:
    """As text if it is text, which is smaller in the store and readable in an export."""
    try:
        return wrote.decode()
    except UnicodeDecodeError:
        return wrote


def check_command(job: MapJob) -> None:
    """Refuse what can't work for any item, before anything starts."""
    program = job.command[0]
    if not program or "\0" in program:
        raise UsageError("the command's name is empty; write: abreast map -- COMMAND {} < items")
    if "{" not in program and not _is_there(_seen_from(job.cwd, program), _search_path(job.cwd)):
        where = "is not a program that can be run" if "/" in program else "is not on the PATH"
        raise UsageError(f"there is no command {program!r} (it {where}); check its spelling")
    _make_room_for_files(job.width)


def _is_there(program: str, path: str) -> bool:
    try:
        find(os.fsencode(program), os.fsencode(path), None)
    except OSError:
        return False
    return True


def _seen_from(cwd: str, program: str) -> str:
    return os.path.join(cwd, program) if "/" in program else program  # noqa: PTH118 - "" must stay ""


def _search_path(cwd: str) -> str:
    """The PATH, its relative parts as they are seen from the job's directory."""
    parts = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(os.path.join(cwd, part) for part in parts)  # noqa: PTH118


def _make_room_for_files(width: int) -> None:
    """Let this process open the files that so many children need; `UsageError` if it may not."""
    needed = _OWN + _PER_CHILD * width
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < needed:
            fits = (most - _OWN) // _PER_CHILD
            raise UsageError(
                f"--width: {width} commands at once need more open files than the {hard} allowed; at most {fits} fit"
            )
