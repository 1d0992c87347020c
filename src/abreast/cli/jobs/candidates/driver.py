"""Drives a run of candidates, new or resumed, from its specification to its exit code."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from abreast.assembly.names import open_model, open_run
from abreast.cli import units
from abreast.cli.config import Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, os_error_text, tell
from abreast.cli.jobs.candidates.failures import PERMANENT_FAILURES, permanent_exit
from abreast.cli.jobs.early_exit import STOPS, EarlyExit, early_exit_by
from abreast.cli.jobs.map.driver import OutputOptions, enter_run
from abreast.cli.jobs.map.process_groups import ProcessGroups
from abreast.cli.jobs.map.prompt import configured_lanes
from abreast.cli.jobs.matrix.page import short_path
from abreast.cli.signals import Interrupts
from abreast.cli.stores import FOLDER, StoreChoice
from abreast.cli.terminal.live_line import LiveLine, closing_line, wants_progress
from abreast.cli.terminal.tables import say, say_facts, say_json, say_table
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.outcome import Done
from abreast.executors.commands import Commands
from abreast.jobs.candidates.author import ModelAuthor, blocks_of
from abreast.jobs.candidates.behaviour.traced_run import LIMITS, Tests
from abreast.jobs.candidates.evaluator import MIN_WALL_SECONDS, Bounds, Evaluator
from abreast.jobs.candidates.job import CandidateRun, CandidatesContext, EvaluationOptions
from abreast.jobs.candidates.report import CandidatesReport
from abreast.jobs.candidates.results import Proposal
from abreast.jobs.candidates.rules import LOOSE, STRICT
from abreast.jobs.candidates.source.origins import (
    from_directory,
    from_file,
    from_patches,
    from_refs,
    patches_in,
)
from abreast.jobs.candidates.source.target import (
    CandidateInvalid,
    Target,
    TargetInvalid,
    parse_target,
    read_source,
)
from abreast.jobs.candidates.spec import SOURCES, CandidatesSpec
from abreast.jobs.candidates.timing.measure import MeasurePlan
from abreast.jobs.candidates.view import CandidatesLive
from abreast.models.lanes import LaneSettings, check_keys, split_name
from abreast.run.run import Resume, Run
from abreast.store.port import JsonValue, RunRow, Store
from abreast.system.file_names import file_name
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.git import GitFailed, find_repository

KIND: Final = "candidates"
_INTERPRETER_TIMEOUT: Final = 60.0  # seconds that an interpreter may take to start


@dataclass(frozen=True, slots=True)
class CandidatesStart:
    """Whether the run is new or resumed, and its name, seed and tags."""

    name: str
    seed: int | None = None
    tags: tuple[str, ...] = ()
    resume: Resume = "never"
    run_id: str | None = None


class CandidatesDriver:
    """Drives one run of candidates; with `must_win`, it fails unless a candidate is faster."""

    def __init__(
        self,
        spec: CandidatesSpec,
        choice: StoreChoice,
        view: OutputOptions,
        *,
        cwd: str,
        must_win: bool = False,
    ) -> None:
        """Find the target and the tests; nothing starts before `run`.

        Raises `UsageError` for errors that are visible beforehand.
        """
        self._spec, self._choice, self._view, self._cwd = spec, choice, view, Path(cwd)
        self._must_win = must_win
        self._root, self.target = self._find_target()
        self._original = read_source(self._root / self.target.file)
        self._lanes: dict[str, LaneSettings] = configured_lanes(Config.load(self._cwd))
        self._check_model()
        self._bench = Evaluator(self.target, self._original, self._tests(), self._read_bounds())
        self._trials: CandidateRun | None = None
        self._failed = False
        self._run_id = ""
        self._started_at = SYSTEM_CLOCK.now()

    @classmethod
    def of_run(
        cls, row: RunRow, choice: StoreChoice, view: OutputOptions, budget: str | None = None
    ) -> CandidatesDriver:
        """The driver of a recorded run, with another budget if one is given."""
        facts: Any = row.manifest.get(KIND)
        if not isinstance(facts, dict):
            raise UsageError(
                f"{row.id} was made by another version of abreast, "
                "and this one doesn't know all of it"
            )
        spec = CandidatesSpec.of(
            {word: value for word, value in facts["spec"].items() if value is not None}
        )
        changed = replace(spec, budget=budget or spec.budget)
        return cls(changed, choice, view, cwd=facts["cwd"], must_win=bool(facts["must_win"]))

    # --- reading the specification ---------------------------------------------------------------

    def _find_target(self) -> tuple[Path, Target]:
        """The root of the project, and the target in it."""
        file, mark, name = self._spec.target.partition("::")
        path = (self._cwd / file).resolve()
        place = path.parent if path.parent.is_dir() else self._cwd
        try:
            repository = find_repository(place, StopRequest())
            top = repository.top if repository.common else self._cwd.resolve()
            return top, parse_target(
                f"{path}{mark}{name}" if path.is_file() else self._spec.target, top
            )
        except (TargetInvalid, CandidateInvalid) as error:
            raise UsageError(one_line(str(error))) from None
        except (GitFailed, OSError) as error:
            raise UsageError(f"{place} can't be used: {one_line(str(error))}") from None

    def _tests(self) -> Tests:
        names = []
        for given in self._spec.tests:
            file, mark, rest = given.partition("::")
            path = (self._cwd / file).resolve()
            if not path.exists():
                raise UsageError(f"--tests: there is no {file}")
            if not path.is_relative_to(self._root):
                raise UsageError(f"--tests: {file} is outside of {self._root}")
            names.append(f"{path.relative_to(self._root).as_posix()}{mark}{rest}")
        python = self._spec.python or sys.executable
        if self._spec.python and os.sep in python:
            # Not resolved: the link's own place decides which virtual environment it is.
            python = str(self._cwd / python)
        if shutil.which(python) is None:
            raise UsageError(f"--python: there is no {python}")
        _check_pytest(python, self._root)
        return Tests(tuple(names), python)

    def _read_bounds(self) -> Bounds:
        spec = self._spec
        cpu = units.duration(spec.timeout)
        rules = replace(STRICT if spec.compare == "strict" else LOOSE, exceptions=spec.exceptions)  # type: ignore[arg-type]
        limits = replace(LIMITS, seconds=max(MIN_WALL_SECONDS, 10 * cpu), cpu=max(1, round(cpu)))
        return Bounds(
            rules,
            limits,
            MeasurePlan(
                threshold=spec.threshold,
                first=min(MeasurePlan().first, spec.blocks),
                most=spec.blocks,
            ),
            spec.generated,
        )

    def _check_model(self) -> None:
        if self._spec.model is not None:
            try:
                check_keys([split_name(self._spec.model, self._lanes)[0]])
            except ValueError as error:
                raise UsageError(f"--model: {error}") from None

    def print_dry_run(self) -> int:
        """Print what would be tried; return the exit code."""
        spec = self._spec
        facts = {
            "target": str(self.target),
            "tests": list(self._tests().names),
            "width": max(1, spec.width),
            "source": next(word for word in SOURCES if getattr(spec, word)),
            "model": spec.model,
            "requests": 0
            if spec.model is None
            else "one for each proposal, repair and adaptation, one for refinement",
        }
        say_json(facts) if self._view.json else say_facts(facts)
        return DONE

    # --- running ---------------------------------------------------------------------------------

    def run(self, store: Store, start: CandidatesStart) -> int:
        """Run the candidates; return the exit code."""
        with asyncio.Runner() as runner:
            return runner.run(self._drive(store, start))

    async def _drive(self, store: Store, start: CandidatesStart) -> int:
        line = LiveLine(CandidatesLive()) if wants_progress() and not self._view.quiet else None
        stopped: EarlyExit | None = None
        with Interrupts(ProcessGroups().kill) as interrupts:
            try:
                with closing_line(line, interrupts):
                    await self._open_and_run(store, start, interrupts, line)
            except PERMANENT_FAILURES as error:
                stopped = permanent_exit(error)
            except STOPS as error:
                stopped = early_exit_by(error, interrupts)
        return self._print_end(stopped)

    async def _open_and_run(
        self,
        store: Store,
        start: CandidatesStart,
        interrupts: Interrupts,
        line: LiveLine | None,
    ) -> None:
        spec = self._spec
        async with AsyncExitStack() as stack:
            author = None
            if spec.model is not None:
                model = await stack.enter_async_context(
                    open_model(spec.model, lanes=self._lanes, store=store)
                )
                author = ModelAuthor(model, self.target, self._original)
            facts: dict[str, JsonValue] = {
                "spec": spec.plain(),
                "cwd": str(self._cwd),
                "must_win": self._must_win,
                "target": str(self.target),
                "original": self._original,
            }
            run = open_run(
                start.name,
                store=store,
                budget=spec.budget,
                seed=start.seed,
                resume=start.resume,
                tags=start.tags,
                run_id=start.run_id,
                kind=KIND,
                hooks=[line] if line else (),
                manifest={KIND: facts},
            )
            how = EvaluationOptions(max(1, spec.width), repairs=spec.repairs, refine=spec.refine)
            context = CandidatesContext(
                self.target, self._original, self._root, self._bench, author, how
            )
            self._trials = trials = CandidateRun(context, lambda text: tell(one_line(text)))
            async with enter_run(run, interrupts):
                self._run_id = run.id or ""
                await trials.run(run, lambda: self._proposals(run, author))
                interrupts.stop_cancelling()
                self._failed = run.results.why_failed is not None

    async def _proposals(self, run: Run, author: ModelAuthor | None) -> Sequence[Proposal]:
        spec = self._spec
        if spec.command is not None:
            return await self._from_command(run, spec.command)
        if (
            spec.candidates is not None
            or spec.patches is not None
            or spec.patch is not None
            or spec.refs
        ):
            return await run_in_thread(self._read_proposals)
        return await author.propose(run, spec.proposals, max(1, spec.width)) if author else []

    def _read_proposals(self, stop: StopRequest) -> list[Proposal]:
        """Candidates from files or commits; it blocks while files are read and git works."""
        spec, here = self._spec, self._cwd
        if spec.candidates is not None:
            return from_directory(here / spec.candidates)
        if spec.patches is not None:
            return from_patches(patches_in(here / spec.patches), self.target, self._original, stop)
        if spec.patch is None:
            return from_refs(spec.refs, self.target, self._root, stop)
        path = here / spec.patch
        return (
            [from_file(path)]
            if path.suffix == ".py"
            else from_patches([path], self.target, self._original, stop)
        )

    async def _from_command(self, run: Run, command: str) -> list[Proposal]:
        """Candidates that a command prints: it runs once for each, each time in a new directory."""
        found: list[Proposal] = []
        async with Commands() as commands:

            async def print_one(number: int) -> str:
                environment = {
                    **os.environ,
                    "ABREAST_TARGET": str(self.target),
                    "ABREAST_NUMBER": str(number),
                    "ABREAST_FILE": str(self._root / self.target.file),
                }
                place = tempfile.mkdtemp(prefix="abreast-command-")
                try:
                    finished = await commands.run(
                        ["sh", "-c", command],
                        stdin=self._original.encode(),
                        cwd=place,
                        env=environment,
                    )
                finally:
                    # In a thread, as the command may have written many files.
                    await run_in_thread(lambda _: shutil.rmtree(place, ignore_errors=True))
                if finished.exit_code:
                    errors = finished.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
                    code = finished.exit_code
                    raise CandidateInvalid(
                        f"the command ended with exit code {code} {' '.join(errors)}"
                    )
                return "\n".join(blocks_of(finished.stdout.decode("utf-8", "replace"))[:1])

            numbers = range(1, self._spec.proposals + 1)
            async with run.map(
                print_one, numbers, width=max(1, self._spec.width), name="command"
            ) as printed:
                async for outcome in printed:
                    name = f"command-{int(outcome.key) + 1}"
                    if isinstance(outcome, Done):
                        found.append(Proposal(name, outcome.value, "command"))
                    else:
                        reason = str(getattr(outcome, "error", "it was stopped"))
                        found.append(Proposal(name, "", "command", fault="error", reason=reason))
        return found

    # --- reporting -------------------------------------------------------------------------------

    def report(self) -> CandidatesReport:
        """The report of what is known so far."""
        trials = self._trials
        if trials is None or not self._bench.seen:
            return CandidatesReport(self.target, self._original, trials.tried if trials else ())
        bench = self._bench
        return CandidatesReport(
            self.target, self._original, trials.tried, bench.original, bench.inputs, trials.profile
        )

    def _print_end(self, stopped: EarlyExit | None) -> int:
        report = self.report()
        if stopped is not None and not any(one.timed or one.checked for one in report.tried):
            return stopped.tell(self._run_id, self._choice)
        if self._view.json:
            say_json(report.plain())
        elif not self._view.quiet:
            self._print_report(report)
        self._write_files(report)
        if stopped is not None:
            return stopped.tell(self._run_id, self._choice)
        lost = self._failed or (self._must_win and report.winner is None)
        return FAILED if lost else DONE

    def _print_report(self, report: CandidatesReport) -> None:
        if report.tried:
            say_table(("candidate", "verdict", "speed", "interval", "memory", "why"), report.rows())
        for line in report.counterexamples():
            say(one_line(line))
        for one in report.tried:
            for regression in (
                one.timed.regressions if one.timed and one.verdict == "faster" else ()
            ):
                say(one_line(f"{one.name}: slower for one input: {regression}"))
        say(report.headline())
        if report.watched is not None and not self._view.quiet:
            if (
                report.inputs is not None
                and report.inputs.untimed
                and report.noise_floor is not None
            ):
                tell(one_line(report.inputs.untimed))
            for note in report.uncompared:
                tell(one_line(note))
            tell(f"confinement: {one_line(report.walls)}")
            if report.uncounted:
                tell(f"instructions are not counted: {one_line(report.uncounted)}")
            seconds = SYSTEM_CLOCK.now() - self._started_at
            noise = "" if report.noise_floor is None else f", noise floor {report.noise_floor:.1%}"
            tell(f"{len(report.tried)} candidates in {seconds:.1f} s{noise} ({self._run_id})")

    def _write_files(self, report: CandidatesReport) -> None:
        """Write the page beside the store, and the winner's patch there or to `--output`."""
        folder = (self._choice.path.parent if self._choice.path else self._cwd / FOLDER) / "reports"
        name = file_name(self._run_id or KIND)
        named = folder / f"{name}.patch"
        files: dict[Path, str] = {folder / f"{name}.html": report.html({"run": self._run_id})}
        if report.patch:
            files[self._cwd / self._spec.output if self._spec.output else named] = report.patch
        for path, text in files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8", newline="")
            except OSError as error:
                tell(f"{path} was not written: {os_error_text(error)}")
            else:
                what = (
                    "the report is"
                    if path.suffix == ".html"
                    else "apply the winner with: git apply"
                )
                if not (self._view.json or self._view.quiet):
                    tell(f"{what} {short_path(path)}")


def _check_pytest(python: str, root: Path) -> None:
    """Raise `UsageError` unless the project's interpreter has pytest.

    Otherwise the first candidates would be requested from a model, and paid, in vain.
    """
    look = "import importlib.util, sys; sys.exit(3 * (importlib.util.find_spec('pytest') is None))"
    try:
        found = subprocess.run(
            [python, "-c", look],
            cwd=root,
            capture_output=True,
            timeout=_INTERPRETER_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--python: {python} can't be run: {one_line(str(error))}") from None
    if found.returncode == 3:  # noqa: PLR2004 - the code above; other failures show in the tests
        raise UsageError(
            f"--python: pytest is not installed for {python}, and the tests are run by it"
        )
