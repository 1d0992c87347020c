"""Drives a run of candidates, new or resumed, from its specification to its exit code."""

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from abreast.assembly.candidates_tools import KIND, CandidatesTools
from abreast.assembly.names import open_model
from abreast.cli.config import BUDGET, Config
from abreast.cli.errors import DONE, FAILED, USAGE, UsageError, one_line, os_error_text, tell
from abreast.cli.jobs.candidates.functions import FunctionsTools
from abreast.cli.jobs.driver import EarlyExit, JobDriver, drive
from abreast.cli.jobs.executors import check_executor
from abreast.cli.jobs.job_file import JobFile
from abreast.cli.jobs.model_options import configured_lanes
from abreast.cli.jobs.request import RunRequest, new_request, read_number, recorded_facts
from abreast.cli.signals import Interrupts
from abreast.cli.stores import FOLDER
from abreast.cli.terminal.live_line import LiveLine
from abreast.cli.terminal.tables import say, say_facts, say_json, say_table
from abreast.core.clock import SYSTEM_CLOCK
from abreast.jobs.candidates.behaviour.verdict import BaselineFailed
from abreast.jobs.candidates.branch import MadeBranch
from abreast.jobs.candidates.functions_report import FunctionsReport
from abreast.jobs.candidates.job import (
    TreeChanged,
)
from abreast.jobs.candidates.phases import COLUMNS as PHASE_COLUMNS
from abreast.jobs.candidates.report import COLUMNS, CandidatesReport
from abreast.jobs.candidates.source.origins import (
    SourceMissing,
)
from abreast.jobs.candidates.source.target import Target
from abreast.jobs.candidates.spec import EVIDENCE, SOURCES, CandidatesSpec, no_evidence
from abreast.jobs.candidates.timing.measure import MIN_BLOCKS
from abreast.jobs.candidates.timing.timed_process import TimedProcessFailed
from abreast.jobs.candidates.view import CandidatesLive
from abreast.jobs.files import units
from abreast.models.lanes import LaneSettings, check_keys, split_name
from abreast.run.run import Run
from abreast.store.port import RunRow, Store
from abreast.system.file_names import file_name
from abreast.system.paths import make_ignored_folder, short_path
from abreast.worktrees.git import GitFailed

if TYPE_CHECKING:
    from abreast.assembly.trees.agents import ChosenAgent
    from abreast.assembly.trees.author_agent import AuthorAgent

_WORDS: Final = (
    "candidates",
    "patches",
    "model",
    "author",
    "python",
    "executor",
    "compare",
    "exceptions",
    "output",
    "branch",
    "timeout",
)
_LEAST: Final = {
    "proposals": 1,
    "repairs": 0,
    "width": 0,
    "generated": 0,
    "blocks": MIN_BLOCKS,
    "top": 1,
}
# The tests, the tree or the source of candidates must change first, which makes a new run.
_PERMANENT_FAILURES: Final = (BaselineFailed, TreeChanged, SourceMissing, TimedProcessFailed)


class CandidatesDriver(JobDriver):
    """Drives one run of candidates.

    With `must_win`, it fails unless a candidate is faster, or without timing, behaves the same.
    """

    kind = KIND
    takes_wait = True

    def __init__(
        self,
        spec: CandidatesSpec,
        request: RunRequest,
        *,
        cwd: str,
        must_win: bool = False,
        profile: bool = False,
    ) -> None:
        """Find the target and the tests.

        Raises `UsageError` for errors that are visible beforehand.
        """
        super().__init__(request)
        self._spec, self._cwd, self._must_win = spec, Path(cwd), must_win
        self._profile = profile
        try:
            make = FunctionsTools if spec.all else CandidatesTools
            self._tools: CandidatesTools | FunctionsTools = make(spec, self._cwd, spell=_spell)
        except ValueError as error:
            raise UsageError(one_line(str(error))) from None
        self._resumed_run = request.run_id
        self._made: MadeBranch | None = None
        self._check_branch()
        self._lanes: dict[str, LaneSettings] = configured_lanes(Config.load(self._cwd))
        self._agent: AuthorAgent | None = None
        names = {"model": None if spec.author else spec.model, "calls_by": spec.calls_by}
        for word, name in names.items():
            try:
                check_keys([split_name(name, self._lanes)[0]] if name else [])
            except ValueError as error:
                raise UsageError(f"{_spell(word)}: {error}") from None
        self._failed = False

    def _check_branch(self) -> None:
        if (branch := self._tools.branch) is None:
            return
        target = self._tools.target
        # Which files of a directory will change is known at the end.
        file = target.file if isinstance(target, Target) else None
        try:
            branch.check(file, resumed=self._resumed_run is not None)
        except ValueError as error:
            raise UsageError(f"--branch: {one_line(str(error))}") from None

    @classmethod
    def of_file(cls, given: JobFile) -> int:
        """Drive the candidates of a file; return the exit code."""
        return drive_candidates(
            given.facts(cls.kind, "a target and tests"),
            "optimize",
            given.flags,
            where=f"{given.file}: candidates",
        )

    @classmethod
    def of_run(
        cls, request: RunRequest, row: RunRow, changes: Mapping[str, Any], _inputs: Sequence[str]
    ) -> Self:
        """The driver of a recorded run, with another budget if one is given."""
        facts = recorded_facts(row, cls.kind)
        if facts.get("program") is not None:
            raise UsageError(
                f"the candidates of {row.id} come from a Python program: "
                "start that again, and it goes on with this run"
            )
        spec = CandidatesSpec.of(
            {word: value for word, value in facts["spec"].items() if value is not None}
        )
        changed = replace(spec, budget=changes["budget"] or spec.budget)
        return cls(changed, request, cwd=facts["cwd"], must_win=bool(facts["must_win"]))

    def print_dry_run(self) -> int:
        """Print what would be tried; return the exit code."""
        spec = self._spec
        facts = {
            "target": str(self._tools.target),
            "tests": list(self._tools.tests.names),
            "evidence": [word for word in EVIDENCE if getattr(spec, word)],
            "width": max(1, spec.width),
            "timing": spec.timing,
            "source": next(word for word in SOURCES if getattr(spec, word)),
            "model": spec.model,
            "requests": 0
            if spec.model is None
            else "one for each proposal, repair and adaptation, one for refinement",
            **({} if spec.author is None else {"agent": spec.author}),
        }
        say_json(facts) if self.view.json else say_facts(facts)
        return DONE

    # --- running ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Connect to the cluster where candidates are checked, if it is one."""
        check_executor(self._spec.executor or "local")
        author = self._spec.author
        if self.wait and author is None:
            raise UsageError("--wait is for --author: it waits for the end of an agent's limit")
        if author is not None:
            from abreast.cli.jobs.agent_options import check_installed

            check_installed(self._chosen(author).runner, str(self._cwd))

    def _chosen(self, author: str) -> "ChosenAgent":
        from abreast.cli.jobs.agent_options import find_chosen  # only jobs with an agent need it

        spec = self._spec
        return find_chosen(author, spec.allow, spec.model, str(self._cwd), "--author")

    def live_line(self, _store: Store | None) -> LiveLine:
        """The candidates that are checked or measured."""
        return LiveLine(CandidatesLive())

    async def open(self, stack: AsyncExitStack, store: Store | None) -> dict[str, Any]:
        """Open the model or the agent that proposes or repairs, if there is one."""
        spec = self._spec
        lanes: dict[str, Any] = {}
        if spec.author is not None:
            from abreast.assembly.trees.author_agent import AuthorAgent

            chosen = self._chosen(spec.author)
            self._agent = await AuthorAgent.open(stack, chosen, self.groups)
            self.wait_for_limits(self._agent.caller)
            self._agent.protected = self._tools.protected
            self._tools.use_agent(self._agent)
            width = max(1, spec.width)
            lanes["lanes"] = await self._agent.open_trees(
                stack,
                self._tools.root,
                width,
                store=store,
                resumed_run=self._resumed_run,
                budget=spec.budget,
            )
        elif spec.model is not None:
            model = await stack.enter_async_context(
                open_model(spec.model, lanes=self._lanes, store=store)
            )
            self._tools.use_model(model)
        if spec.calls_by is not None:
            caller = open_model(spec.calls_by, lanes=self._lanes, store=store)
            self._tools.use_calls(await stack.enter_async_context(caller))
        facts = {**self._tools.facts(), "must_win": self._must_win}
        return {"budget": spec.budget, "manifest": {self.kind: facts}, **lanes}

    async def work(self, run: Run, _stack: AsyncExitStack) -> None:
        """Try the candidates."""
        if self._agent is not None:
            self._agent.begin(self.run_id)
        await self._tools.work(run, lambda text: tell(one_line(text)))
        self._failed = run.results.why_failed is not None

    def early_exit(self, error: BaseException, interrupts: Interrupts) -> EarlyExit:
        """Without a hint to resume for a failure that a resume can't mend."""
        if not isinstance(error, _PERMANENT_FAILURES):
            return super().early_exit(error, interrupts)
        usage = not isinstance(error, TimedProcessFailed)
        if isinstance(error, BaselineFailed):
            usage = error.usage
            for line in error.said:
                tell(f"pytest: {one_line(line)}")
        fix = "" if isinstance(error, TreeChanged) else "; mend that and start a new run"
        code = USAGE if usage else FAILED
        return EarlyExit(f"{one_line(str(error))}{fix}", code, resumable=False)

    # --- reporting -------------------------------------------------------------------------------

    def print_stop(self, stopped: EarlyExit) -> int:
        """Print what is known so far, and why the run ended; return the exit code."""
        if any(one.timed or one.checked for one in self._tools.report().tried):
            self._print_and_write()
        return super().print_stop(stopped)

    def print_result(self) -> int:
        """Make the branch, print and write the report; return the exit code."""
        unmade = self._make_branch()
        report = self._print_and_write()
        if self._made is not None and not (self.view.json or self.view.quiet):
            tell(f"the branch {self._made.name} has the winner: git log {self._made.name}")
        elif unmade:
            tell(one_line(unmade))
        if report.failures:
            some = "a candidate" if report.failures == 1 else f"{report.failures} candidates"
            again = f"abreast resume {self.run_id} --retry-failed{self.choice.flag}"
            tell(f"{some} could not be tried; once more: {again}")
        won = report.winner is not None if self._spec.timing else report.behaves
        failed = self._failed or report.failures or (unmade and report.winner is not None)
        return FAILED if failed or (self._must_win and not won) else DONE

    def _make_branch(self) -> str:
        """Make the branch of the winner; return why there is none, if one was wanted."""
        if (branch := self._tools.branch) is None:
            return ""
        commits = self._tools.report().commits(self.run_id)
        if not commits:
            return f"the branch {branch.name} was not made: no candidate is faster"
        try:
            self._made = branch.make(commits)
        except (GitFailed, ValueError) as error:
            return f"the branch {branch.name} was not made: {error}"
        return ""

    def _print_and_write(self) -> CandidatesReport | FunctionsReport:
        report = replace(self._tools.report(), branch=self._made)
        if self.view.json:
            say_json(report.plain())
        elif not self.view.quiet:
            self._print_report(report)
        if self._profile:
            self._print_phases(report)
        self._write_files(report)
        return report

    def _print_phases(self, report: CandidatesReport | FunctionsReport) -> None:
        for row in (PHASE_COLUMNS, *report.costs.rows()):
            tell("{:16} {:>9} {:>9} {:>12}".format(*row))
        own, whole = os.times(), SYSTEM_CLOCK.now() - self.started_at
        cpu = f"{own.user + own.system:.1f}"
        tell("{:16} {:>9} {:>9} {:>12}".format("this process", "1", f"{whole:.1f}", cpu))

    def _print_report(self, report: CandidatesReport | FunctionsReport) -> None:
        if report.tried:
            say_table(COLUMNS, report.rows())
        regressions = [
            f"{one.name}: slower for one input: {regression}"
            for one in report.tried
            if one.timed and one.verdict == "faster"
            for regression in one.timed.regressions
        ]
        for line in (*report.counterexamples(), *regressions, *report.headline().split("\n")):
            say(one_line(line))
        if report.watched is not None:
            measured = report.noise_floor is not None
            notes = (
                report.inputs.untimed if report.inputs and measured else "",
                *report.uncompared,
                f"confinement: {report.walls}",
                report.uncounted and f"instructions are not counted: {report.uncounted}",
                "" if report.processes == "forked" else f"processes: {report.processes}",
            )
            for note in filter(None, notes):
                tell(one_line(note))
            seconds = SYSTEM_CLOCK.now() - self.started_at
            noise = "" if report.noise_floor is None else f", noise floor {report.noise_floor:.1%}"
            tell(f"{len(report.tried)} candidates in {seconds:.1f} s{noise} ({self.run_id})")

    def _write_files(self, report: CandidatesReport | FunctionsReport) -> None:
        """Write the page beside the store, and the winner's patch there or to `--output`."""
        folder = (self.choice.path.parent if self.choice.path else self._cwd / FOLDER) / "reports"
        name = file_name(self.run_id or self.kind)
        output = self._cwd / self._spec.output if self._spec.output else folder / f"{name}.patch"
        files: dict[Path, str] = {folder / f"{name}.html": report.html({"run": self.run_id})}
        if report.patch:
            files[output] = report.patch
        for path, text in files.items():
            try:
                if self.choice.path is None:  # else the store has made its folder
                    make_ignored_folder(folder.parent)
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
                if not (self.view.json or self.view.quiet):
                    tell(f"{what} {short_path(path)}")


def drive_candidates(
    facts: dict[str, Any], name: str, given: Mapping[str, Any], *, where: str = ""
) -> int:
    """Drive candidates by flags and `facts`; `where` is the place in a job file, for errors."""
    config = Config.load()
    request = new_request(config, given.get("name") or name, given)
    flags = {
        **{word: given.get(word) for word in _WORDS},
        **{
            word: read_number(f"--{word}", given.get(word), least=least)
            for word, least in _LEAST.items()
        },
        **{word: _tolerance(word, given.get(word)) for word in ("rel_tol", "abs_tol")},
        "threshold": _share(given["threshold"]) if given.get("threshold") else None,
        "all": True if given.get("all_functions") else None,
        "timing": False if given.get("behaviour_only") else None,
        **{word: list(given.get(word) or ()) or None for word in ("tests", "workload", "allow")},
        **{word: given.get(word) or None for word in ("doctests", "hints", "trace", "calls_by")},
        "budget": config.get(BUDGET, given.get("budget")) or None,
    }
    facts = facts | {word: value for word, value in flags.items() if value is not None}
    if not where and not any(facts.get(word) for word in EVIDENCE):
        raise UsageError(no_evidence(_spell))
    try:
        spec = CandidatesSpec.of(facts, where or name)
        units.duration(spec.timeout)
    except ValueError as error:
        raise UsageError(one_line(str(error))) from None
    driver = CandidatesDriver(
        spec,
        request,
        cwd=str(Path.cwd()),
        must_win=name == "verify",
        profile=bool(given.get("profile")),
    )
    return drive(driver, replace(request, dry_run=request.dry_run or request.check_only))


def _spell(word: str) -> str:
    """How an option is written."""
    return f"--{word.replace('_', '-')}"


def _tolerance(word: str, given: str | None) -> float | None:
    try:
        found = None if given is None else float(given)
    except ValueError:
        found = math.nan
    if found is not None and not 0 <= found < math.inf:
        raise UsageError(f"{_spell(word)}: {given!r} is no number such as 1e-9")
    return found


def _share(given: str) -> float:
    text = given.strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share < 10:  # noqa: PLR2004 - more is certainly a mistake
        raise UsageError(f"--threshold: {given!r} is no share such as 0.05 or 5%")
    return share
