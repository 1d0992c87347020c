"""Checks a merge before it is applied: syntax, imports, and a user's own command.

Only faults that the source tree does not have count. Every fault names the fewest merged changes
that cause it, usually a pair of subplans.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.work.commands import Processes
from abreast.jobs.plan.work.import_gate import (
    BlamedFault,
    ImportFault,
    ImportGate,
    blame,
    importers,
)
from abreast.worktrees.merge.apply import put
from abreast.worktrees.merge.merge import SOURCE, Change, Merged
from abreast.worktrees.merge.names import as_word
from abreast.worktrees.merge.snapshots import Snapshots
from abreast.worktrees.slot import Slot

TESTS: Final = "{tests}"
_IS_TEST: Final = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
_MAX_LINE_CHARACTERS: Final = 200  # quoted of a command's last line

Merge = Callable[[Sequence[Change]], Merged]
"""Merges some of the changes of a plan into the source tree, as they would all be merged."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check: faults that block, and notes that do not."""

    faults: tuple[BlamedFault, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedMerge:
    """A merge to check: its changes, a way to merge fewer of them, and the source's imports."""

    merged: Merged
    changes: Sequence[Change]
    merge: Merge
    imports: Imports
    snapshots: Snapshots

    @property
    def changed(self) -> list[str]:
        """The paths that the merge changes."""
        return [
            each.path
            for each in self.snapshots.changes(self.merged.source, self.merged.tree).changed
        ]

    async def blamed(self, breaks: Callable[[str], Awaitable[bool]]) -> tuple[str, ...]:
        """The leaves whose changes make a tree for which `breaks` is true.

        The source tree counts as one of them if it has changed since the leaf began.
        """

        async def broken(changes: Sequence[Change]) -> bool:
            return await breaks(self.merge(changes).tree)

        guilty = await blame(
            [each for each in self.changes if each.leaf in self.merged.merged], broken
        )
        if (
            len(guilty) == 1
            and guilty[0].base != self.merged.source
            and not await breaks(guilty[0].result)
        ):
            return (SOURCE, guilty[0].leaf)
        return tuple(each.leaf for each in guilty)


async def check_imports(whole: CheckedMerge) -> CheckResult:
    """Find new syntax errors and unresolved imports in changed files and those that import them."""
    gate = ImportGate(whole.snapshots)
    paths = importers(whole.imports, whole.changed)
    source, tree = whole.merged.source, whole.merged.tree
    new = await asyncio.to_thread(lambda: gate.faults(tree, paths) - gate.faults(source, paths))
    found: list[BlamedFault] = []
    for fault in sorted(new):

        async def breaks(tree: str, fault: ImportFault = fault) -> bool:
            return fault in await asyncio.to_thread(gate.faults, tree, [fault.path])

        found.append(BlamedFault(fault, await whole.blamed(breaks)))
    return CheckResult(tuple(found))


@dataclass(frozen=True, slots=True)
class MergeCheck:
    """A user's own command, such as `pytest -q {tests}`, run by `sh` in a worktree.

    `{tests}` is replaced by the tests that import a changed file, directly or not.
    """

    command: str
    slot: Slot
    processes: Processes
    _known: dict[tuple[str, tuple[str, ...]], str | None] = field(default_factory=dict)

    async def look(self, whole: CheckedMerge) -> CheckResult:
        """Run the command on the merge; if it fails, find the cause of each new failure."""
        tests = affected_tests(whole)
        if TESTS in self.command and not tests:
            return CheckResult(notes=("no test imports what was changed: the check was not run",))
        source, tree = whole.merged.source, whole.merged.tree
        if await self._failure(whole, tree, tests) is None:
            return CheckResult()
        found: list[BlamedFault] = []
        notes: list[str] = []
        for part in [(test,) for test in tests] if TESTS in self.command else [()]:
            failure = await self._failure(whole, tree, part)
            if failure is None:
                continue
            if await self._failure(whole, source, part) is not None:
                notes.append(
                    f"{self._command_line(part)} failed before, and is left out of the comparison"
                )
                continue

            async def breaks(tree: str, part: tuple[str, ...] = part) -> bool:
                return await self._failure(whole, tree, part) is not None

            found.append(
                BlamedFault(
                    ImportFault(self._command_line(part), f"fails ({failure})"),
                    await whole.blamed(breaks),
                )
            )
        if not found and not notes:
            notes.append(f"{self._command_line(tests)} fails, but none of its tests does by itself")
        return CheckResult(tuple(found), tuple(notes))

    def _command_line(self, tests: tuple[str, ...]) -> str:
        return self.command.replace(TESTS, " ".join(tests))

    async def _failure(self, whole: CheckedMerge, tree: str, tests: tuple[str, ...]) -> str | None:
        """How the command fails on a tree, in a few words; None if it passes."""
        there = set(await asyncio.to_thread(whole.snapshots.entries, tree)) if tests else set()
        present = tuple(test for test in tests if test in there)
        if tests and not present:
            return None
        key = (tree, present)
        if key not in self._known:
            self._known[key] = await self._run(whole, tree, present)
        return self._known[key]

    async def _run(self, whole: CheckedMerge, tree: str, tests: tuple[str, ...]) -> str | None:
        await self.slot.reset()
        await asyncio.to_thread(put, whole.snapshots, self.slot.root, tree)
        argv = ["sh", "-c", self.command.replace(TESTS, '"$@"'), "sh", *map(as_word, tests)]
        finished = await self.processes.run(
            argv, self.slot.root, {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        )
        if not finished.exit_code:
            return None
        lines = (finished.stdout + finished.stderr).decode("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1].strip()[:_MAX_LINE_CHARACTERS]}" if lines else ""
        return f"exit code {finished.exit_code}{last}"


def affected_tests(whole: CheckedMerge) -> tuple[str, ...]:
    """The test files that are changed, or import a changed file directly or through others."""
    return tuple(
        sorted(filter(_IS_TEST.search, importers(whole.imports, whole.changed, all_of_them=True)))
    )
