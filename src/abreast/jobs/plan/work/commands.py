"""A subplan's work as a command or a Python function, in a process group of its own."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from abreast.executors.commands import CommandRunner, Finished
from abreast.jobs.plan.errors import SubplanFailed
from abreast.jobs.plan.work.assignment import Assignment
from abreast.run.current import CurrentItem, current_item
from abreast.worktrees.git import without_repository
from abreast.worktrees.merge.names import as_word

_MAX_OUTPUT_BYTES: Final = 1 << 20  # kept of stdout and of stderr
# The system bounds the size of a variable; a longer text is in a file only.
_MAX_VARIABLE_BYTES: Final = 100_000
REPLACED: Final = {
    "{files}": '"$@"',
    "{instructions}": '"$ABREAST_INSTRUCTIONS"',
    "{requests}": '"$ABREAST_REQUESTS"',
}
"""What a command may have in it, and the words of sh that take its place."""
_CEILING: Final = "GIT_CEILING_DIRECTORIES"
_CALL_CODE: Final = "from abreast.jobs.plan.work.called import main; main()"


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs processes; `started` and `ended` are called with the process group of each.

    All of them have `variables` in their environment, which is otherwise that of this process, or
    `environment`.
    """

    commands: CommandRunner
    started: Callable[[CurrentItem, int], None] = lambda _item, _group: None
    ended: Callable[[int], None] = lambda _group: None
    variables: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    async def run(self, argv: list[str], cwd: Path, env: Mapping[str, str]) -> Finished:
        """Run a command to its end, without variables that lead git to another repository."""
        env = without_repository(env) | dict(self.variables)
        item, group = current_item(), 0

        def started(pgid: int) -> None:
            nonlocal group
            group = pgid
            if item is not None:
                self.started(item, pgid)

        try:
            return await self.commands.run(
                argv, cwd=str(cwd), env=env, keep=_MAX_OUTPUT_BYTES, started=started
            )
        finally:
            self.ended(group)


@dataclass(frozen=True, slots=True)
class CommandTask:
    """Runs a command by `sh`, with `{files}` replaced by the subplan's files, each as one word.

    $ABREAST_SUBPLAN is the subplan's name, $ABREAST_SCOPE its directory, $ABREAST_FILE_LIST a file
    with its files, one on each line (without those that have a line break in their names),
    $ABREAST_FILE_LIST0 one with all of them, each ended by a NUL, $ABREAST_INSTRUCTION_FILE a file
    with the instruction. $ABREAST_FILES and $ABREAST_INSTRUCTION are the first and the last as
    text, unless that is too long for a variable. A name that starts with a dash has ./ before it,
    so that no command takes it for an option.

    `{instructions}` and $ABREAST_INSTRUCTIONS are what this subplan alone is told. In a second
    round, `{requests}`, $ABREAST_REQUESTS and the file $ABREAST_REQUESTS_FILE are the changes that
    other subplans ask for.
    """

    command: str
    processes: Processes

    async def __call__(self, assignment: Assignment) -> dict[str, Any]:
        """Run the command; raises `SubplanFailed` if its exit code is not 0."""
        with _exchange_directory(assignment) as place:
            env = {**self.processes.environment, **_variables(assignment, Path(place))}
            words = ["sh", *map(as_word, assignment.files)] if "{files}" in self.command else []
            text = self.command
            for written, word in REPLACED.items():
                text = text.replace(written, word)
            argv = ["sh", "-c", text, *words]
            finished = await self.processes.run(argv, assignment.path, env)
        output = _output(finished)
        if finished.exit_code:
            raise SubplanFailed(f"exit code {finished.exit_code}{_last_error_line(output)}", output)
        return output


@dataclass(frozen=True, slots=True)
class CallTask:
    """Calls a Python function with the `Assignment`, in an own interpreter in the worktree.

    Modules are found as in the directory `home`. The function's result must be JSON.
    """

    call: str
    """The function, as `module:function`."""
    home: str
    processes: Processes

    async def __call__(self, assignment: Assignment) -> dict[str, Any]:
        """Call the function; raises `SubplanFailed` with the message of its exception."""
        with _exchange_directory(assignment) as name:
            place = Path(name)
            facts = {
                "call": self.call,
                "home": self.home,
                "id": assignment.id,
                "scope": assignment.scope,
                "files": list(assignment.files),
                "instruction": assignment.instruction,
                "instructions": assignment.instructions,
                "requests": [asdict(each) for each in assignment.requests],
                "path": str(assignment.path),
            }
            (place / "asked.json").write_text(json.dumps(facts), "utf-8")
            around = self.processes.environment
            env = {**around, **_variables(assignment, place), "ABREAST_CALL": name}
            # Paths relative to `home` must not become relative to the worktree.
            listed = filter(None, around.get("PYTHONPATH", "").split(os.pathsep))
            env["PYTHONPATH"] = os.pathsep.join(str(Path(self.home, one)) for one in listed)
            # -P: no modules from the worktree, which may have files with the names of modules.
            argv = [sys.executable, "-P", "-c", _CALL_CODE]
            finished = await self.processes.run(argv, assignment.path, env)
            answer: dict[str, Any] = {}
            with suppress(OSError, ValueError):
                answer = json.loads((place / "answer.json").read_text("utf-8"))
        output = _output(finished)
        if "error" in answer:
            raise SubplanFailed(answer["error"], output)
        if finished.exit_code or "value" not in answer:
            raise SubplanFailed(
                f"its process ended with {finished.exit_code}{_last_error_line(output)}", output
            )
        return {"value": answer["value"], **output}


def _exchange_directory(assignment: Assignment) -> tempfile.TemporaryDirectory[str]:
    """A directory for the files that work gets and writes.

    It is beside the worktree, so that it is removed with it after a kill.
    """
    return tempfile.TemporaryDirectory(prefix="abreast-subplan-", dir=assignment.scratch)


def _variables(assignment: Assignment, place: Path) -> dict[str, str]:
    names = [as_word(file) for file in assignment.files]
    # A name with a line break would be read as two names, which may be those of other files.
    files = "\n".join(name for name in names if "\n" not in name)
    by_line, by_nul, instruction = place / "files", place / "files0", place / "instruction"
    by_line.write_bytes(os.fsencode(f"{files}\n" if files else ""))
    by_nul.write_bytes(b"".join(os.fsencode(name) + b"\0" for name in names))
    instruction.write_text(assignment.instruction, "utf-8")
    requests, asked = place / "requests", assignment.request_text
    requests.write_bytes(os.fsencode(asked))
    found = {
        "ABREAST_SUBPLAN": assignment.id,
        "ABREAST_SCOPE": as_word(assignment.scope),
        "ABREAST_FILE_LIST": str(by_line),
        "ABREAST_FILE_LIST0": str(by_nul),
        "ABREAST_INSTRUCTION_FILE": str(instruction),
        "ABREAST_INSTRUCTIONS": assignment.instructions,
        "ABREAST_REQUESTS": _cut(asked, requests),
        "ABREAST_REQUESTS_FILE": str(requests),
    }
    if assignment.scratch is not None:
        # If the worktree loses its `.git`, git must not find a repository above it.
        found[_CEILING] = os.pathsep.join(
            filter(None, [str(assignment.scratch.parent), os.environ.get(_CEILING)])
        )
    texts = {"ABREAST_FILES": files, "ABREAST_INSTRUCTION": assignment.instruction}
    return found | {
        name: text for name, text in texts.items() if len(os.fsencode(text)) < _MAX_VARIABLE_BYTES
    }


def _cut(text: str, place: Path) -> str:
    """The text, or so much of it as a variable holds, and where the rest is."""
    content = os.fsencode(text)
    if len(content) < _MAX_VARIABLE_BYTES:
        return text
    return f"{content[:_MAX_VARIABLE_BYTES].decode(errors='ignore')}\n[the rest is in {place}]\n"


def _output(finished: Finished) -> dict[str, Any]:
    return {
        "stdout": finished.stdout.decode("utf-8", "replace"),
        "exit_code": finished.exit_code,
        "stderr": finished.stderr.decode("utf-8", "replace"),
    }


def _last_error_line(output: Mapping[str, Any]) -> str:
    lines = output["stderr"].strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""
