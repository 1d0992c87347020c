"""Tries the functions of a file or directory one after the other, the slowest first, in one run."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from abreast.assembly.candidates_tools import (
    CandidatesTools,
    find_evidence,
    find_root,
    find_tests,
    read_limits,
)
from abreast.jobs.candidates.author import AskableModel, EditingAgent
from abreast.jobs.candidates.behaviour.ranking import RankedFunction, rank_functions
from abreast.jobs.candidates.behaviour.verdict import BaselineFailed
from abreast.jobs.candidates.branch import CandidateBranch
from abreast.jobs.candidates.functions_report import FunctionsReport
from abreast.jobs.candidates.results import Tried
from abreast.jobs.candidates.source.changes import FileChange, protected_places
from abreast.jobs.candidates.source.target import TargetInvalid, read_source
from abreast.jobs.candidates.spec import CandidatesSpec
from abreast.jobs.candidates.timing.timed_process import TimedProcessFailed
from abreast.run.run import Run
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.git import GitFailed
from abreast.worktrees.pool import open_worktrees

_SOURCES: Final = ("candidates", "command", "model", "author")
_LEFT_OUT: Final = ("__pycache__", "node_modules", "site-packages", "tests", "test")
_MERGE_SECONDS: Final = 60.0
# Of one function; the others are tried nevertheless.
_OWN_FAILURES: Final = (BaselineFailed, TimedProcessFailed, TargetInvalid)


class FunctionsTools:
    """The functions of a path, their tests and candidates."""

    def __init__(
        self, spec: CandidatesSpec, cwd: Path, *, spell: Callable[[str], str] = str
    ) -> None:
        """Find the files and the tests; it blocks while git and the project's Python start.

        Raises ValueError for errors that are visible beforehand.
        """
        self.spec, self._cwd, self._spell = spec, cwd, spell
        self._path = (cwd / spec.target).resolve()
        if not self._path.exists():
            raise ValueError(f"{spell('all')}: there is no {spec.target}")
        if not any(getattr(spec, word) for word in _SOURCES):
            words = ", ".join(map(spell, _SOURCES))
            raise ValueError(f"{spell('all')}: candidates come from one of {words}")
        if not (spec.tests or spec.workload):
            words = f"{spell('tests')} or {spell('workload')}"
            raise ValueError(f"{spell('all')} ranks functions by a profile of {words}: give one")
        place = self._path if self._path.is_dir() else self._path.parent
        try:
            self.root = find_root(place, cwd)
        except (GitFailed, OSError) as error:
            raise ValueError(f"{place} can't be used: {error}") from None
        self.tests = find_tests(spec, cwd, self.root, spell)
        self.target = self._path.relative_to(self.root).as_posix()
        scripts = find_evidence(spec, cwd, self.root, spell).scripts
        self.protected = protected_places(self.tests.names, scripts, self.target)
        self.branch = None if spec.branch is None else CandidateBranch(self.root, spec.branch)
        self._model: AskableModel | None = None
        self._agent: EditingAgent | None = None
        self._calls_by: AskableModel | None = None
        self._ranked: list[RankedFunction] = []
        self._parts: list[tuple[RankedFunction, CandidatesTools]] = []
        self._skipped: dict[str, str] = {}
        self._merged: dict[str, FileChange] = {}
        self._conflicts: list[str] = []
        self._steps: list[tuple[int, tuple[FileChange, ...]]] = []

    def use_model(self, model: AskableModel) -> None:
        """Have a model propose candidates, or repair and refine those that are given."""
        self._model = model

    def use_agent(self, agent: EditingAgent) -> None:
        """Have a coding agent propose candidates, or repair and refine those that are given."""
        self._agent = agent

    def use_calls(self, model: AskableModel) -> None:
        """Have a model propose calls of each function."""
        self._calls_by = model

    def facts(self) -> dict[str, Any]:
        """What a manifest records."""
        return {
            "spec": self.spec.plain(),
            "cwd": str(self._cwd),
            "target": self.target,
            "original": "",
        }

    async def work(self, run: Run, notify: Callable[[str], None]) -> None:
        """Rank the functions, and try the candidates of the slowest that have any."""

        async def rank() -> list[dict[str, Any]]:
            return [asdict(one) for one in await self._rank()]

        self._ranked = [RankedFunction(**one) for one in await run.step("ranking", rank)]
        done = failed = 0
        for function in self._chosen():
            name = str(function.target)
            notify(f"{name}: {function.share:.0%} of the time, {function.calls} calls")
            try:
                tools = await run_in_thread(self._maker_of(function))
                self._parts.append((function, tools))
                async with run.child(name) as scope:
                    await tools.work(scope, notify)
            except _OWN_FAILURES as error:
                self._parts = [one for one in self._parts if one[0] is not function]
                self._skipped[name] = str(error)
                failed += 1
            else:
                done += 1
        run.count_results("function", done=done, failed=failed)
        await run_in_thread(lambda _: self._merge())

    def report(self) -> FunctionsReport:
        """The report of what is known so far."""
        return FunctionsReport(
            self.target,
            [(function, tools.report()) for function, tools in self._parts],
            self._skipped,
            self._merged,
            self._conflicts,
            steps=self._steps,
            unranked=len(self._ranked) - len(self._parts) - len(self._skipped),
            timing=self.spec.timing,
        )

    async def _rank(self) -> list[RankedFunction]:
        files = await run_in_thread(lambda _: list(self._files()))
        scripts = find_evidence(self.spec, self._cwd, self.root, self._spell).scripts
        workloads = tuple({"kind": "script", "path": path} for path in scripts)
        tests, limits = replace(self.tests, workloads=workloads), read_limits(self.spec)
        async with open_worktrees(self.root, 1, ignored=True) as trees:
            return await rank_functions(trees.slots[0], tests, files, limits)

    def _files(self) -> Iterator[str]:
        """Yield the Python files beneath the path that are no tests."""
        paths = [self._path] if self._path.is_file() else sorted(self._path.rglob("*.py"))
        for path in paths:
            inside = path.relative_to(self.root)
            hidden = any(one.startswith(".") or one in _LEFT_OUT for one in inside.parts[:-1])
            is_test = path.name.startswith("test_") or path.name.endswith("_test.py")
            if not hidden and not is_test and path.name != "conftest.py":
                yield inside.as_posix()

    def _chosen(self) -> list[RankedFunction]:
        """The slowest functions; with a directory of candidates, those that it has any for."""
        place = self.spec.candidates
        found = [
            one
            for one in self._ranked
            if place is None or (self._cwd / place / one.qualname).is_dir()
        ]
        return found[: self.spec.top]

    def _maker_of(self, function: RankedFunction) -> Callable[[StopRequest], CandidatesTools]:
        return lambda _: self._tools_of(function)

    def _tools_of(self, function: RankedFunction) -> CandidatesTools:
        place = self.spec.candidates
        spec = replace(
            self.spec,
            all=False,
            branch=None,
            target=str(self.root / function.file) + f"::{function.qualname}",
            candidates=None if place is None else f"{place}/{function.qualname}",
        )
        tools = CandidatesTools(spec, self._cwd, spell=self._spell)
        if self._model is not None:
            tools.use_model(self._model)
        if self._agent is not None:
            tools.use_agent(self._agent)
        if self._calls_by is not None:
            tools.use_calls(self._calls_by)
        return tools

    def _merge(self) -> None:
        """Put all winners into one text for each file; one that changes the same lines is left."""
        for number, (function, tools) in enumerate(self._parts):
            if (winner := tools.report().winner) is None:
                continue
            merged = self._with_winner(function, winner)
            if merged is None:
                self._conflicts.append(str(function.target))
            else:
                self._merged |= merged
                self._steps.append((number, tuple(merged.values())))

    def _with_winner(self, function: RankedFunction, winner: Tried) -> dict[str, FileChange] | None:
        """The files of a winner, each with the winners before; None if these change the same."""
        before = read_source(self.root / function.file)
        found = {}
        for one in (FileChange(function.file, before, winner.text), *winner.files):
            earlier = self._merged.get(one.path)
            if earlier is None or earlier.after == one.after:
                found[one.path] = one
                continue
            if one.before is None or one.after is None or earlier.after is None:
                return None
            merged = _merge_texts(earlier.after, one.before, one.after)
            if merged is None:
                return None
            found[one.path] = FileChange(one.path, one.before, merged)
        return found


def _merge_texts(ours: str, base: str, theirs: str) -> str | None:
    """Merge two changes of a text by git; None if they change the same lines."""
    with tempfile.TemporaryDirectory(prefix="abreast-merge-") as place:
        names = []
        for name, text in (("ours", ours), ("base", base), ("theirs", theirs)):
            (Path(place) / name).write_text(text, "utf-8", newline="")
            names.append(name)
        done = subprocess.run(
            ["git", "merge-file", "-p", *names],  # noqa: S607 - the user's own git
            cwd=place,
            capture_output=True,
            check=False,
            timeout=_MERGE_SECONDS,
        )
    return None if done.returncode else done.stdout.decode("utf-8")
