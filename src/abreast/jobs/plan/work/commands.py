"""A subplan's work as a command, or as a Python function: a process of its own in the worktree, killed as a group."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from abreast.executors.commands import Commands, Finished
from abreast.jobs.plan.errors import SubplanFailed
from abreast.jobs.plan.work.assignment import Assignment
from abreast.run.current import CurrentItem, current_item
from abreast.worktrees.merge.names import as_word

_KEEP: Final = 1 << 20
_VARIABLE: Final = 100_000  # bytes; the system bounds a variable: what is longer is in a file alone
# What `git rev-parse --local-env-vars` lists, and its like: set by a hook that started us, they
# lead to its repository.
_OF_A_REPOSITORY: Final = re.compile(
    r"GIT_(ALTERNATE_OBJECT_DIRECTORIES|COMMON_DIR|CONFIG|CONFIG_COUNT|CONFIG_PARAMETERS|CONFIG_(KEY|VALUE)_\d+|DIR"
    r"|GRAFT_FILE|IMPLICIT_WORK_TREE|INDEX_FILE|INTERNAL_SUPER_PREFIX|NAMESPACE|NO_REPLACE_OBJECTS|OBJECT_DIRECTORY"
    r"|PREFIX|QUARANTINE_PATH|REPLACE_REF_BASE|SHALLOW_FILE|WORK_TREE)"
)
_CEILING: Final = "GIT_CEILING_DIRECTORIES"
_CALL: Final = "from abreast.jobs.plan.work.called import main; main()"


@dataclass(frozen=True, slots=True)
class Processes:
    """What runs processes, and who is told of them."""

    commands: Commands
    started: Callable[[CurrentItem, int], None] = lambda _item, _group: None
    ended: Callable[[int], None] = lambda _group: None

    async def run(self, argv: list[str], cwd: Path, env: Mapping[str, str]) -> Finished:
        """Run a command to its end.

        Variables that would lead git to another repository are left out.
        """
        env = {name: value for name, value in env.items() if not _OF_A_REPOSITORY.fullmatch(name)}
        item, group = current_item(), 0

        def started(pgid: int) -> None:
            nonlocal group
            group = pgid
            if item is not None:
                self.started(item, pgid)

        try:
            return await self.commands.run(argv, cwd=str(cwd), env=env, keep=_KEEP, started=started)
        finally:
            self.ended(group)


class CommandTask:
    """Runs a command by `sh`: `{files}` are the subplan's files, each one word.

    $ABREAST_SUBPLAN is the subplan's name, $ABREAST_SCOPE its directory, $ABREAST_FILE_LIST a file
    with its files, one on each line (without those that have a line break in their names),
    $ABREAST_FILE_LIST0 one with all of them, each ended by a NUL, $ABREAST_INSTRUCTION_FILE a file
    with the instruction. $ABREAST_FILES and $ABREAST_INSTRUCTION are the first and the last as
    text, unless that is too long for a variable. A name that starts with a dash has ./ before it,
    so that no command takes it for an option.
    """

    def __init__(self, command: str, processes: Processes) -> None:
        """This command."""
        self._command = command
        self._processes = processes

    async def __call__(self, assignment: Assignment) -> dict[str, Any]:
        """Run it; `SubplanFailed` if its exit code isn't 0."""
        with _folder(assignment) as place:
            env = {**os.environ, **_variables(assignment, Path(place))}
            finished = await self._processes.run(self._argv(assignment), assignment.path, env)
        wrote = _wrote(finished)
        if finished.exit_code:
            raise SubplanFailed(f"exit code {finished.exit_code}{_last(wrote)}", wrote)
        return wrote

    def _argv(self, assignment: Assignment) -> list[str]:
        if "{files}" not in self._command:
            return ["sh", "-c", self._command]
        return [
            "sh",
            "-c",
            self._command.replace("{files}", '"$@"'),
            "sh",
            *map(as_word, assignment.files),
        ]


class CallTask:
    """Calls a Python function with the `Assignment`, in an interpreter of its own whose directory is the worktree.

    Modules are found as in the directory `home`. What the function returns must be JSON.
    """

    def __init__(self, call: str, home: str, processes: Processes) -> None:
        """This function."""
        self._call = call
        self._home = home
        self._processes = processes

    async def __call__(self, assignment: Assignment) -> dict[str, Any]:
        """Call it; `SubplanFailed` has what it raised."""
        with _folder(assignment) as name:
            place = Path(name)
            facts = {
                "call": self._call,
                "home": self._home,
                "id": assignment.id,
                "scope": assignment.scope,
                "files": list(assignment.files),
                "instruction": assignment.instruction,
                "path": str(assignment.path),
            }
            (place / "asked.json").write_text(json.dumps(facts), "utf-8")
            env = {**os.environ, **_variables(assignment, place), "ABREAST_CALL": name}
            # What was relative to where it was asked must not be relative to the worktree.
            listed = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
            env["PYTHONPATH"] = os.pathsep.join(str(Path(self._home, one)) for one in listed)
            # Not from the worktree, which may have files with the names of modules.
            argv = [sys.executable, "-P", "-c", _CALL]
            finished = await self._processes.run(argv, assignment.path, env)
            answer: dict[str, Any] = {}
            with suppress(OSError, ValueError):
                answer = json.loads((place / "answer.json").read_text("utf-8"))
        wrote = _wrote(finished)
        if "error" in answer:
            raise SubplanFailed(answer["error"], wrote)
        if finished.exit_code or "value" not in answer:
            raise SubplanFailed(f"its process ended with {finished.exit_code}{_last(wrote)}", wrote)
        return {"value": answer["value"], **wrote}


def _folder(assignment: Assignment) -> tempfile.TemporaryDirectory[str]:
    """A directory for what is told to the work: beside its worktree, so that it goes with it after a kill."""
    return tempfile.TemporaryDirectory(prefix="abreast-subplan-", dir=assignment.scratch)


def _variables(assignment: Assignment, place: Path) -> dict[str, str]:
    names = [as_word(file) for file in assignment.files]
    files = "\n".join(
        name for name in names if "\n" not in name
    )  # it would be read as two, which may be others
    listed, ended, told = place / "files", place / "files0", place / "instruction"
    listed.write_bytes(os.fsencode(f"{files}\n" if files else ""))
    ended.write_bytes(b"".join(os.fsencode(name) + b"\0" for name in names))
    told.write_text(assignment.instruction, "utf-8")
    found = {
        "ABREAST_SUBPLAN": assignment.id,
        "ABREAST_SCOPE": as_word(assignment.scope),
        "ABREAST_FILE_LIST": str(listed),
        "ABREAST_FILE_LIST0": str(ended),
        "ABREAST_INSTRUCTION_FILE": str(told),
    }
    if assignment.scratch is not None:
        # Should the worktree lose its `.git`, git must not find a repository above it.
        found[_CEILING] = os.pathsep.join(
            filter(None, [str(assignment.scratch.parent), os.environ.get(_CEILING)])
        )
    texts = {"ABREAST_FILES": files, "ABREAST_INSTRUCTION": assignment.instruction}
    return found | {
        name: text for name, text in texts.items() if len(os.fsencode(text)) < _VARIABLE
    }


def _wrote(finished: Finished) -> dict[str, Any]:
    return {
        "stdout": finished.stdout.decode("utf-8", "replace"),
        "exit_code": finished.exit_code,
        "stderr": finished.stderr.decode("utf-8", "replace"),
    }


def _last(wrote: Mapping[str, Any]) -> str:
    """The last line of what it said was wrong."""
    lines = wrote["stderr"].strip().splitlines()
    return f": {lines[-1][:200]}" if lines else ""
