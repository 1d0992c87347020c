"""Drives a study, new or resumed, from its file to its exit code."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from abreast.assembly.functions import find_function_in
from abreast.assembly.matrix_tools import source_of
from abreast.assembly.study import ReadyStudy
from abreast.assembly.workflow_tools import Tools, wrong_sample
from abreast.cli.config import BUDGET, Config
from abreast.cli.errors import FAILED, UsageError, one_line, os_error_text, refusing, tell
from abreast.cli.jobs.driver import JobDriver, drive
from abreast.cli.jobs.executors import check_executor
from abreast.cli.jobs.job_file import JobFile
from abreast.cli.jobs.matrix.dry_run import DryRun, print_dry_run
from abreast.cli.jobs.matrix.page import report_path, write_page
from abreast.cli.jobs.matrix.verdict import NO_VERDICT, VerdictOptions
from abreast.cli.jobs.model_options import (
    configured_lanes,
    lane_widths,
    read_call_mode,
    with_wait,
)
from abreast.cli.jobs.request import RunRequest, new_request, read_number
from abreast.cli.terminal.live_line import LiveLine
from abreast.cli.terminal.tables import say_json
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import Halted, WorkflowInvalid
from abreast.jobs.matrix.design.cells import CurrentCells, Design
from abreast.jobs.matrix.design.read_study import load_study
from abreast.jobs.matrix.job import Matrix
from abreast.jobs.matrix.recorded_rows import cells_of
from abreast.jobs.matrix.recorded_rows import changes as changes_of
from abreast.jobs.matrix.recorded_study import KIND, StudyFile, newest_study
from abreast.jobs.matrix.spec import CellChoice, Study
from abreast.jobs.matrix.view import MatrixLive
from abreast.run.run import Run
from abreast.store.port import RunRow, Store
from abreast.system.installation import install_hint
from abreast.system.paths import short_path

_MAX_NAMES: Final = 5  # of cells in a message


class NotAsked(Halted):
    """Some cells have no reply yet, and offline no model is asked; the run can be resumed."""


class MatrixDriver(JobDriver):
    """Drives one run of a study."""

    kind = KIND
    resume_modes = ("must", "retry")
    row: RunRow | None = None
    """The run to resume; None for a new one."""
    _store: Store
    _line: LiveLine | None = None
    _progress: MatrixLive | None = None
    _matrix: Matrix
    _missing = ""

    def __init__(
        self,
        source: StudyFile,
        request: RunRequest,
        *,
        report: bool = True,
        offline: bool = False,
        verdict: VerdictOptions = NO_VERDICT,
    ) -> None:
        """Read the study.

        With `offline`, cells make no new calls to models, but judges are asked. Raises
        `UsageError` if the file is wrong, or an option names something that isn't in it.
        """
        super().__init__(request)
        self.source = source
        self._offline = offline
        self._wants_report = report
        self._verdict = verdict
        self.directory = Path(source.directory)
        self._config = Config.load(self.directory)
        self.study = self._load()
        lanes = configured_lanes(self._config, calls=source.calls)
        widths = lane_widths(None if source.lane_width is None else str(source.lane_width), lanes)
        self._ready = ReadyStudy(
            self.study, source, lanes, widths=widths, choice=self._choice(), offline=offline
        )
        verdict.read(
            [score.name for score in self.study.scores],
            [strategy.name for strategy in self.study.strategies],
        )

    @classmethod
    def of_file(cls, given: JobFile) -> int:
        """Drive the study of a file; return the exit code."""
        model = given.flags["model"]
        return drive_study(
            given.file, given.text, {**given.flags, "models": (model,) if model else ()}
        )

    @classmethod
    def of_run(
        cls, request: RunRequest, row: RunRow, changes: Mapping[str, Any], _inputs: Sequence[str]
    ) -> Self:
        """The driver of a recorded run, with another budget if one is given."""
        source = recorded_file(request.opened, row)
        calls = with_wait(source.calls, changes.get("batch_wait"))
        budget = changes["budget"] or source.budget
        driver = cls(replace(source, budget=budget, calls=calls), request)
        driver.row = row
        return driver

    def _load(self) -> Study:
        source = self.source
        with refusing("", WorkflowInvalid):
            return load_study(
                source.text,
                source.file,
                self.directory,
                code_of=source_of(self._find),
                check_sample=wrong_sample,
            )

    def _find(self, call: str) -> Callable[..., Any]:
        return find_function_in(call, str(self.directory))

    def _choice(self) -> CellChoice:
        study, source = self.study, self.source
        labels = [model.label for model in study.models]
        names = [*(strategy.name for strategy in study.strategies), *study.controls]
        flags = {
            "--model": (source.models, labels),
            "--strategy": (source.strategies, names),
            "--input": (source.inputs, [one.id for one in study.inputs]),
        }
        for flag, (given, known) in flags.items():
            for name in given:
                if name not in known:
                    raise UsageError(
                        f"{flag}: there is no {name!r} in {source.file}; "
                        f"there are {', '.join(known[:20])}"
                    )
        return CellChoice(
            frozenset(source.models),
            frozenset(source.strategies),
            frozenset(source.inputs),
            source.repeats,
        )

    def print_before(self, store: Store | None, row: RunRow | None) -> int:
        """Print which arms can't run, which cells are recorded and which run again, and why.

        Returns how many cells can run.
        """
        study = self.study
        cells = sum(self._ready.cells_per_lane().values())
        if self.view.quiet:
            return cells
        for line, text in study.warnings:
            tell(f"{self.source.file}:{line}: warning: {text}")
        reasons: dict[str, list[str]] = {}
        for (model, strategy), why in self._ready.unavailable.items():
            reasons.setdefault(why, []).append(f"{model} x {strategy}")
        for why, arms in reasons.items():
            tell(f"can't run: {', '.join(arms)}: {one_line(why)}")
        if store is not None and row is not None:
            found = changes_of(store, row, study, self._ready.wanted)
            for why, keys in found.again.items():
                names = ", ".join(keys[:_MAX_NAMES]) + (
                    f" and {len(keys) - _MAX_NAMES} more" if len(keys) > _MAX_NAMES else ""
                )
                tell(f"{len(keys)} cells run again, because {why}: {names}")
            tell(
                f"goes on with {row.id}: {found.recorded} of {cells} cells are recorded, "
                f"{found.missing} are missing"
            )
            self._print_left_out(store, row)
        return cells

    def _print_left_out(self, store: Store, row: RunRow) -> None:
        current = CurrentCells(Design.of(self.study))
        for one in cells_of(store, row):
            current.passes(one)
        if current.said is not None:
            tell(
                f"{current.said}: what is recorded of them stays, "
                "but is in no report and no export without --all"
            )

    def print_dry_run(self) -> int:
        """Print what the study would cost, and how long it would take."""
        facts = DryRun(self.study, self._ready.wanted, self._ready.lanes, self._ready.widths)
        with self.choice.look() as store:
            row = newest_study(store, self.study.name) if store is not None else None
            self.print_before(store, row)
            return print_dry_run(facts, store, as_json=self.view.json)

    def live_line(self, _store: Store | None) -> LiveLine:
        """Cells, lanes and cost."""
        self._progress = MatrixLive(self._ready.cells_per_lane(), self._ready.widths)
        self._line = LiveLine(self._progress)
        return self._line

    async def open(self, stack: AsyncExitStack, store: Store | None) -> dict[str, Any]:
        """Print what will run, and open the tools of cells."""
        if store is None:
            raise RuntimeError("a study is recorded in a store")
        self._store = store
        self._cells = self.print_before(store, self.row)
        if not self._cells:
            raise UsageError("no cell can run: nothing was chosen, or nothing chosen can run here")
        check_executor(self.source.executor or "local")
        bounds: dict[str, Any] = {**self._config.workflow()}
        tools = Tools(
            cwd=str(self.directory),
            lanes=self._ready.lanes,
            store=store,
            find=self._find,
            executor=self.source.executor or "local",
            started=self.groups.started,
            ended=self.groups.ended,
            runners=self._config.runners(),
            **bounds,
        )
        bench = self._ready.tools(tools)
        self._matrix = self._ready.matrix(
            bench,
            self._line,
            # Without models, only the cells that have a reply.
            self._ready.answered(store, self.row)
            if self._offline and self.row is not None
            else None,
        )
        if self._progress is not None:
            self._progress.watch(self._matrix.tally, bench.lanes)
        await stack.enter_async_context(bench)
        budget = None if self._offline else self.source.budget  # it limits the cells
        # The line is told of cells, not of events.
        return {"budget": budget, "manifest": self._ready.manifest(), "hooks": ()}

    async def work(self, run: Run, _stack: AsyncExitStack) -> None:
        """Run the cells."""
        self._ready.resume(self._store, run)
        await self._matrix.run(run)

    def unfinished(self) -> NotAsked | None:
        """A run offline is not done if some cells have no reply yet."""
        left = self._cells - sum(lane.cells for lane in self._matrix.tally.lanes.values())
        if not self._offline or left <= 0:
            return None
        self._missing = f"{left} of {self._cells} cells have no reply yet"
        return NotAsked(self._missing)

    def print_result(self) -> int:
        """Print the counts and write the report; return the exit code."""
        tally, cells = self._matrix.tally, self._cells
        if self._missing and not self.view.quiet:
            tell(
                f"{self._missing}, and are not scored; "
                f"ask for them with: abreast matrix run {self.source.file}"
            )
        if not (self.view.json or self.view.quiet):
            seconds = SYSTEM_CLOCK.now() - self.started_at
            failed = f", {tally.failed} failed" if tally.failed else ""
            tell(f"{tally.done} of {cells} cells done{failed} in {seconds:.1f} s ({self.run_id})")
            for name, lacking in sorted(tally.unscored.items()):
                why = one_line(f"{lacking.example}: {lacking.why}")
                cells_text = f"could not be given in {lacking.cells} cells"
                tell(f"the score {name} {cells_text}, for example {why}")
        report = self._write_report(self._store) if self._wants_report else None
        if self.view.json:
            words = ("cells", "done", "failed")
            lanes = {
                name: {word: getattr(lane, word) for word in words}
                for name, lane in tally.lanes.items()
            }
            say_json(
                {
                    "run": self.run_id,
                    "cells": cells,
                    "done": tally.done,
                    "failed": tally.failed,
                    "lanes": lanes,
                    "score_errors": {
                        name: one.cells for name, one in sorted(tally.unscored.items())
                    },
                    "report": report,
                }
            )
        reached = self._verdict.check(
            self._store, self._store.get(self.run_id), self._ready.unavailable
        )
        return FAILED if tally.failed or tally.unscored else reached

    def _write_report(self, store: Store) -> str | None:
        """Write the report and return its path; print why if it can't be written.

        A missing report is no error of the study.
        """
        row = store.get(self.run_id)
        path = report_path(row, self.choice)
        try:
            write_page(store, row, path)
        except ImportError:
            then = f"abreast matrix report {self.run_id}{self.choice.flag}"
            message = f"for a report: {install_hint('report')}, then {then}"
        except OSError as error:
            message = f"the report was not written: {path}: {os_error_text(error)}"
        else:
            if not (self.view.json or self.view.quiet):
                tell(f"the report is {short_path(path)}")
            return str(path)
        if not self.view.quiet:
            tell(message)
        return None


def drive_study(file: str, text: str, given: Mapping[str, Any]) -> int:
    """Run a study's file, or go on with its newest run; return the exit code."""
    config = Config.load()
    width = given.get("lane_width")
    source = StudyFile(
        file,
        text,
        str(Path(file).resolve().parent),
        read_number("--lane-width", width) if width is None or "=" not in width else width,
        config.get(BUDGET, given["budget"]),
        list(given.get("models", ())),
        list(given.get("strategies", ())),
        list(given.get("inputs", ())),
        read_number("--repeats", given.get("repeats")),
        bool(given.get("adaptive")),
        given.get("executor"),
        read_call_mode(given),
        warm=bool(given.get("warm")),
    )
    request = new_request(config, KIND, given)
    driver = MatrixDriver(
        source, request, report=not given.get("no_report"), verdict=VerdictOptions.of(given)
    )
    if request.dry_run:
        return drive(driver, request)
    with request.choice.open() as store:
        row = None if given.get("no_resume") else newest_study(store, driver.study.name)
        if row is None:
            return drive(driver, replace(request, store=store, name=driver.study.name))
        return resume_study(driver, request, store, row, retry=bool(given.get("rerun_failed")))


def recorded_file(store: Store, row: RunRow) -> StudyFile:
    """The file of a recorded run; `UsageError` if a Python program described the study."""
    with refusing():
        source = StudyFile.of_run(store, row)
    if not source.file:
        raise UsageError(
            f"{row.id} is a study of a Python program; run that program again, and it goes on"
        )
    return source


def resume_study(
    driver: MatrixDriver, request: RunRequest, store: Store, row: RunRow, *, retry: bool = False
) -> int:
    """Go on with a run of the driver's study; return the exit code."""
    driver.row = row
    return drive(
        driver,
        replace(
            request, store=store, name=row.name, run_id=row.id, resume=driver.resume_modes[retry]
        ),
    )
