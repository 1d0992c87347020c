"""Drives a study, new or resumed, from its file to its exit code."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from abreast.assembly.matrix_tools import RunMatrixTools, source_of
from abreast.assembly.workflow_tools import Tools
from abreast.cli.config import BUDGET, Config
from abreast.cli.errors import DONE, FAILED, UsageError, one_line, os_error_text, refusing, tell
from abreast.cli.jobs.driver import JobDriver, drive
from abreast.cli.jobs.job_file import JobFile
from abreast.cli.jobs.map.call import find_function
from abreast.cli.jobs.matrix.dry_run import DryRun, print_dry_run
from abreast.cli.jobs.matrix.page import (
    STUDY_GIVEN,
    design_of,
    manifest_of,
    provenance,
    report_path,
    short_path,
    write_page,
)
from abreast.cli.jobs.model_options import (
    ADAPTIVE_WIDTH,
    configured_lanes,
    lane_widths,
    wrong_sample,
)
from abreast.cli.jobs.request import RunRequest, new_request, read_number, recorded_facts
from abreast.cli.terminal.live_line import LiveLine
from abreast.cli.terminal.tables import say_json
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import Halted, WorkflowInvalid
from abreast.jobs.matrix.design.cells import CurrentCells, Design
from abreast.jobs.matrix.design.read_study import load_study
from abreast.jobs.matrix.job import Matrix, without
from abreast.jobs.matrix.recorded_rows import answered, cells_of, spent_of
from abreast.jobs.matrix.recorded_rows import changes as changes_of
from abreast.jobs.matrix.spec import CONTROL_LANE, CellChoice, Study, StudyStrategy
from abreast.jobs.matrix.view import MatrixLive
from abreast.models.lanes import (
    LaneSettings,
    certificate_fault,
    missing_extra,
    missing_keys,
    refuses_files,
    split_name,
)
from abreast.run.run import Run
from abreast.store.port import JsonValue, RunRow, Store
from abreast.system.installation import install_hint

KIND: Final = "matrix"
_MAX_NAMES: Final = 5  # of cells in a message
_UNLIMITED_KINDS: Final = ("scripted", "replay")  # kinds of lanes that ask no provider


class NotAsked(Halted):
    """Some cells have no reply yet, and offline no model is asked; the run can be resumed."""


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A study's file as it was read, and the options given with it, as a manifest stores them."""

    file: str
    text: str
    directory: str
    lane_width: int | str | None = None
    """For all lanes, or for some: `a=1,b=8`."""
    budget: str | None = None
    models: list[str] = field(default_factory=list)
    strategies: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    repeats: int | None = None
    adaptive: bool = False

    def manifest(self) -> dict[str, JsonValue]:
        """The file and its options as a run's manifest stores them."""
        return {KIND: asdict(self)}

    @classmethod
    def of_run(cls, store: Store, row: RunRow) -> Self:
        """The file of a recorded run, as its newest driver had it."""
        return cls(**recorded_facts(replace(row, manifest=manifest_of(store, row)), KIND))


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
    ) -> None:
        """Read the study.

        With `offline`, cells make no new calls to models, but judges are asked. Raises
        `UsageError` if the file is wrong, or an option names something that isn't in it.
        """
        super().__init__(request)
        self.source = source
        self._offline = offline
        self._wants_report = report
        self.directory = Path(source.directory)
        self._config = Config.load(self.directory)
        self.study = self._load()
        configured = configured_lanes(self._config)
        given = lane_widths(
            None if source.lane_width is None else str(source.lane_width), configured
        )
        self.lanes: dict[str, LaneSettings] = {
            name: _with_width(
                lane, given.get(name), self.study.lane_width, adaptive=source.adaptive
            )
            for name, lane in configured.items()
        }
        self.widths = self._widths(given)
        self.unavailable = self._find_unavailable()
        self.wanted = without(self._wanted(), set(self.unavailable))

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
        source = StudyFile.of_run(request.opened, row)
        driver = cls(replace(source, budget=changes["budget"] or source.budget), request)
        driver.row = row
        return driver

    def _widths(self, given: Mapping[str, int]) -> dict[str, int]:
        """How many requests at once each lane takes; for a lane without a limit, how many cells."""
        limited = {
            name: lane.width
            for name, lane in self.lanes.items()
            if lane.kind not in _UNLIMITED_KINDS
        }
        every = (
            self.source.lane_width
            if isinstance(self.source.lane_width, int)
            else self.study.lane_width
        )
        return {**dict.fromkeys((*self.study.lanes(), *self.lanes), every), **given, **limited}

    def _max_widths(self) -> dict[str, int]:
        found = {name for name, lane in self.lanes.items() if lane.adaptive and not lane.capped}
        return {
            name: ADAPTIVE_WIDTH if name in found else width for name, width in self.widths.items()
        }

    def _width_text(self) -> int | str:
        widths = {lane: self.widths[lane] for lane in self.study.lanes() if lane != CONTROL_LANE}
        every = set(widths.values())
        return (
            every.pop()
            if len(every) == 1
            else ", ".join(f"{lane}={width}" for lane, width in widths.items())
        )

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
        try:
            return find_function(call, str(self.directory))
        except UsageError as error:
            raise ValueError(str(error).removeprefix("--call: ")) from None

    def _wanted(self) -> CellChoice:
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

    def _find_unavailable(self) -> dict[tuple[str, str], str]:
        found: dict[tuple[str, str], str] = {}
        for model in self.study.models:
            why = None if self._offline else self._why_unavailable(model.name)
            for strategy in self.study.strategies:
                reason = (
                    why
                    or (strategy.code if strategy.code.startswith("missing: ") else None)
                    or self._why_unseen(model.name, strategy)
                )
                if reason:
                    found[model.label, strategy.name] = reason
        return found

    def _why_unseen(self, model: str, strategy: StudyStrategy) -> str | None:
        """Why a model can't be sent the images of a strategy; None if it can, or there are none."""
        lane = self._lane_of(model)
        if lane is None or self._offline:
            return None
        sends = any(one.files_for(strategy) for one in self.study.inputs)
        return refuses_files(lane) if sends else None

    def _why_unavailable(self, model: str) -> str | None:
        try:
            lane, _ = split_name(model, self.lanes)
        except ValueError as error:
            return str(error)
        if lane.lacks_key:
            return f"no key for {lane.name} ({lane.api_key_env or lane.api_key_file})"
        if wanted := missing_keys(lane):
            return f"{lane.name} wants {wanted}"
        return missing_extra(lane) or certificate_fault(lane)

    def print_before(self, store: Store | None, row: RunRow | None) -> int:
        """Print which arms can't run, which cells are recorded and which run again, and why.

        Returns how many cells can run.
        """
        study = self.study
        cells = sum(self._per_lane().values())
        if self.view.quiet:
            return cells
        for line, text in study.warnings:
            tell(f"{self.source.file}:{line}: warning: {text}")
        reasons: dict[str, list[str]] = {}
        for (model, strategy), why in self.unavailable.items():
            reasons.setdefault(why, []).append(f"{model} x {strategy}")
        for why, arms in reasons.items():
            tell(f"can't run: {', '.join(arms)}: {one_line(why)}")
        if store is not None and row is not None:
            found = changes_of(store, row, study, self.wanted)
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

    def _per_lane(self) -> dict[str, int]:
        """How many of the selected cells that can run each lane has."""
        study = self.study
        return {lane: sum(1 for _ in study.cells(lane, self.wanted)) for lane in study.lanes()}

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
        facts = DryRun(self.study, self.wanted, self.lanes, self.widths)
        with self.choice.look() as store:
            row = newest_study(store, self.study.name) if store is not None else None
            self.print_before(store, row)
            return print_dry_run(facts, store, as_json=self.view.json)

    def _manifest(self) -> dict[str, JsonValue]:
        lanes = {model.name: self._lane_of(model.name) for model in self.study.models}
        facts = provenance(
            self.directory,
            self._width_text(),
            [lane for lane in lanes.values() if lane is not None],
        )
        return {
            **self.source.manifest(),
            "provenance": facts,
            "design": Design.of(self.study).plain(),
        }

    def _lane_of(self, model: str) -> LaneSettings | None:
        try:
            return split_name(model, self.lanes)[0]
        except ValueError:  # `print_before` has named it already
            return None

    def live_line(self, _store: Store | None) -> LiveLine:
        """Cells, lanes and cost."""
        self._progress = MatrixLive(self._per_lane(), self.widths)
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
        bounds: dict[str, Any] = {**self._config.workflow()}
        tools = Tools(
            cwd=str(self.directory),
            lanes=self.lanes,
            store=store,
            find=self._find,
            started=self.groups.started,
            ended=self.groups.ended,
            runners=self._config.runners(),
            **bounds,
        )
        bench = RunMatrixTools(tools, self.directory, offline=self._offline)
        self._matrix = Matrix(
            self.study,
            bench,
            self.wanted,
            width=self._max_widths(),
            told=self._line,
            # Without models, only the cells that have a reply.
            only=answered(store, self.row, self.study, self.wanted)
            if self._offline and self.row is not None
            else None,
        )
        if self._progress is not None:
            self._progress.watch(self._matrix.tally, bench.lanes)
        await stack.enter_async_context(bench)
        budget = None if self._offline else self.source.budget  # it limits the cells
        # The line is told of cells, not of events.
        return {"budget": budget, "manifest": self._manifest(), "hooks": ()}

    async def work(self, run: Run, _stack: AsyncExitStack) -> None:
        """Run the cells."""
        self._record_source(self._store, run)
        self._charge_budget(self._store, run)
        await self._matrix.run(run)

    def unfinished(self) -> NotAsked | None:
        """A run offline is not done if some cells have no reply yet."""
        left = self._cells - sum(lane.cells for lane in self._matrix.tally.lanes.values())
        if not self._offline or left <= 0:
            return None
        self._missing = f"{left} of {self._cells} cells have no reply yet"
        return NotAsked(self._missing)

    def _record_source(self, store: Store, run: Run) -> None:
        """Record the file and options of this driver if they differ from those recorded before.

        `abreast resume` uses the newest ones.
        """
        if not run.resumed:
            return
        row = store.get(self.run_id)
        if (self.source, Design.of(self.study)) != (
            StudyFile.of_run(store, row),
            design_of(store, row),
        ):
            run.note(STUDY_GIVEN, value=self._manifest())

    def _charge_budget(self, store: Store, run: Run) -> None:
        """Charge the budget with everything that the run has cost.

        That includes drivers without a budget, and cells that have been superseded since.
        """
        if run.resumed and run.budget is not None:
            known, spent = run.budget.spent, spent_of(store, store.get(self.run_id))
            run.budget.restore(
                {name: max(0.0, amount - known[name]) for name, amount in spent.items()}
            )

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
        return FAILED if tally.failed or tally.unscored else DONE

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


def _with_width(
    lane: LaneSettings, given: int | None, default: int, *, adaptive: bool
) -> LaneSettings:
    """The lane with the width of `--lane-width`, abreast.toml or else the study, as its cap.

    A lane that grows would measure the provider's queue, so it grows only with `--adaptive`.
    """
    if lane.kind in _UNLIMITED_KINDS:
        return lane
    grows = adaptive and lane.adaptive
    width = given or (lane.width if lane.capped else default)
    return replace(
        lane, width=width, adaptive=grows, capped=not grows or given is not None or lane.capped
    )


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
    )
    request = new_request(config, KIND, given)
    driver = MatrixDriver(source, request, report=not given.get("no_report"))
    if request.dry_run:
        return drive(driver, request)
    with request.choice.open() as store:
        row = None if given.get("no_resume") else newest_study(store, driver.study.name)
        if row is None:
            return drive(driver, replace(request, store=store, name=driver.study.name))
        return resume_study(driver, request, store, row, retry=bool(given.get("rerun_failed")))


def newest_study(store: Store, name: str) -> RunRow | None:
    """The newest run of the study of that name; None if there is none."""
    row = store.newest(name)
    return row if row is not None and row.kind == KIND else None


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
