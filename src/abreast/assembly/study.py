"""A study made ready to run here: its lanes and widths, the arms that can run, its manifest.

The command line and `abreast.matrix` both run studies through it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from abreast.assembly.matrix_tools import RunMatrixTools
from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.outcome import Outcome
from abreast.core.version import VERSION
from abreast.jobs.matrix.design.cells import Design
from abreast.jobs.matrix.job import Matrix, without
from abreast.jobs.matrix.recorded_rows import answered, spent_of
from abreast.jobs.matrix.recorded_study import STUDY_GIVEN, StudyFile, design_of
from abreast.jobs.matrix.spec import CONTROL_LANE, CellChoice, Study, StudyStrategy
from abreast.models.lanes import (
    ADAPTIVE_WIDTH,
    LaneSettings,
    certificate_fault,
    missing_extra,
    missing_keys,
    refuses_files,
    split_name,
)
from abreast.models.price import table_date
from abreast.run.run import Run
from abreast.store.port import JsonValue, RunRow, Store
from abreast.store.postgres.address import without_password

if TYPE_CHECKING:
    from abreast.assembly.workflow_tools import Tools
    from abreast.models.port import Model
    from abreast.run.calls.model import Caller

_UNLIMITED_KINDS: Final = ("scripted", "replay")  # kinds of lanes that ask no provider


class ReadyStudy:
    """A study with the lanes that it has here."""

    def __init__(
        self,
        study: Study,
        source: StudyFile,
        lanes: Mapping[str, LaneSettings],
        *,
        widths: Mapping[str, int],
        choice: CellChoice,
        opened: Mapping[str, Model] | None = None,
        offline: bool = False,
    ) -> None:
        """Find out which arms can run; nothing is opened.

        `lanes` are those of abreast.toml, `widths` those given for this run; `opened` are models
        that are open already, by name. With `offline`, cells make no new calls to models.
        """
        study = replace(study, warm=study.warm or source.warm)
        self.study = study
        self.source = source
        self.directory = Path(source.directory)
        self.opened = dict(opened or {})
        self.offline = offline
        self.lanes: dict[str, LaneSettings] = {
            name: _with_width(lane, widths.get(name), study.lane_width, adaptive=source.adaptive)
            for name, lane in lanes.items()
        }
        self.widths = self._widths(widths)
        """How many requests at once each lane takes; for a lane without a limit, how many cells."""
        self.unavailable = self._find_unavailable()
        """The arms that can't run here, by labels of model and strategy, and why."""
        self.wanted = without(choice, set(self.unavailable))

    def _widths(self, given: Mapping[str, int]) -> dict[str, int]:
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

    def max_widths(self) -> dict[str, int]:
        """The widths, and for lanes that find theirs out, the most that they may find."""
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

    def cells_per_lane(self) -> dict[str, int]:
        """How many of the selected cells that can run each lane has."""
        study = self.study
        return {lane: sum(1 for _ in study.cells(lane, self.wanted)) for lane in study.lanes()}

    # --- arms that can't run ----------------------------------------------------------------------

    def _find_unavailable(self) -> dict[tuple[str, str], str]:
        found: dict[tuple[str, str], str] = {}
        for model in self.study.models:
            why = None if self.offline else self._why_unavailable(model.name)
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
        if lane is None or self.offline:
            return None
        sends = any(one.files_for(strategy) for one in self.study.inputs)
        return refuses_files(lane) if sends else None

    def _why_unavailable(self, model: str) -> str | None:
        if model in self.opened:
            return None
        try:
            lane, _ = split_name(model, self.lanes)
        except ValueError as error:
            return str(error)
        if lane.lacks_key:
            return f"no key for {lane.name} ({lane.api_key_env or lane.api_key_file})"
        if wanted := missing_keys(lane):
            return f"{lane.name} wants {wanted}"
        return missing_extra(lane) or certificate_fault(lane)

    def _lane_of(self, model: str) -> LaneSettings | None:
        if model in self.opened:
            return None
        try:
            return split_name(model, self.lanes)[0]
        except ValueError:  # `unavailable` says so
            return None

    # --- the run ----------------------------------------------------------------------------------

    def manifest(self) -> dict[str, JsonValue]:
        """The file, its design, and where and with what it runs, as a run stores them."""
        lanes = {model.name: self._lane_of(model.name) for model in self.study.models}
        facts = _provenance(
            self.directory,
            self._width_text(),
            [lane for lane in lanes.values() if lane is not None],
        )
        return {
            **self.source.manifest(),
            "provenance": facts,
            "design": Design.of(self.study).plain(),
        }

    def tools(self, tools: Tools) -> RunMatrixTools:
        """The tools of its cells, for `async with`."""
        return RunMatrixTools(
            tools,
            self.directory,
            offline=self.offline,
            opened=self._callers(),
            warm=self.study.warm,
        )

    def _callers(self) -> dict[str, Caller]:
        """The models that are open already; those without a lane get one of the study's width."""
        from abreast.limits.slots import Slots
        from abreast.run.calls.lane import ModelLane
        from abreast.run.calls.model import Caller

        lanes: dict[str, ModelLane] = {}
        found: dict[str, Caller] = {}
        for name, model in self.opened.items():
            if isinstance(model, Caller):
                found[name] = model
                continue
            lane, _, _ = name.partition("/")
            width = self.widths.get(lane, self.study.lane_width)
            found[name] = Caller(model, lanes.setdefault(lane, ModelLane(lane, [Slots(width)])))
        return found

    def matrix(
        self,
        tools: RunMatrixTools,
        told: Callable[[str, Outcome[Any]], None] | None = None,
        only: Container[str] | None = None,
    ) -> Matrix:
        """The job; `told` and `only` as it takes them."""
        return Matrix(self.study, tools, self.wanted, width=self.max_widths(), told=told, only=only)

    def answered(self, store: Store, row: RunRow) -> frozenset[str]:
        """The cells of a run that can be scored without a model."""
        return answered(store, row, self.study, self.wanted)

    def resume(self, store: Store, run: Run) -> None:
        """Record what differs from the last driver of a resumed run, and charge its budget.

        `abreast resume` uses the newest file and options. The budget is charged with everything
        that the run has cost: also drivers without a budget, and cells superseded since.
        """
        if not run.resumed or run.id is None:
            return
        row = store.get(run.id)
        if (self.source, Design.of(self.study)) != (
            StudyFile.of_run(store, row),
            design_of(store, row),
        ):
            run.note(STUDY_GIVEN, value=self.manifest())
        if run.budget is not None:
            known, spent = run.budget.spent, spent_of(store, row)
            run.budget.restore(
                {name: max(0.0, amount - known[name]) for name, amount in spent.items()}
            )


def _with_width(
    lane: LaneSettings, given: int | None, default: int, *, adaptive: bool
) -> LaneSettings:
    """The lane with the width that is given, that of abreast.toml or else the study's, as its cap.

    A lane that grows would measure the provider's queue, so it grows only if asked to.
    """
    if lane.kind in _UNLIMITED_KINDS:
        return lane
    grows = adaptive and lane.adaptive
    width = given or (lane.width if lane.capped else default)
    return replace(
        lane, width=width, adaptive=grows, capped=not grows or given is not None or lane.capped
    )


# --- provenance -----------------------------------------------------------------------------------

_CLIENT_PACKAGES: Final = ("aiohttp", "xllamacpp")  # packages that make the calls
_PRICED_KINDS: Final = (
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
)  # kinds of lanes whose prices may come from the table


def _provenance(
    directory: Path, width: int | str, lanes: Sequence[LaneSettings]
) -> dict[str, JsonValue]:
    """The provenance that a run stores; `lanes` are those of its models."""
    status = subprocess.run(
        [
            shutil.which("git") or "git",
            "-C",
            str(directory),
            "status",
            "--porcelain=v2",
            "--branch",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    status_lines = status.stdout.splitlines() if status.returncode == 0 else []
    commit = next(
        (line.rpartition(" ")[2] for line in status_lines if line.startswith("# branch.oid ")), None
    )
    return {
        "abreast": VERSION,
        "packages": ", ".join(
            f"{name} {version}"
            for name in _CLIENT_PACKAGES
            if (version := _version(name)) is not None
        ),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "commit": commit,
        "dirty": any(not line.startswith("#") for line in status_lines) if status_lines else None,
        "prices": _price_source(lanes),
        "lane_width": width,
        "argv": [without_password(word) for word in sys.argv[1:]],
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _price_source(lanes: Sequence[LaneSettings]) -> str:
    """Which table prices were taken from, and its date.

    It is read only if some lane has no price of its own.
    """
    if not any(lane.kind in _PRICED_KINDS and lane.price is None for lane in lanes):
        return "those that the lanes have themselves"
    version = _version("genai-prices")
    if version is None:
        return "no table is installed"
    newest = table_date(datetime.fromtimestamp(SYSTEM_CLOCK.wall(), UTC).date())
    return f"genai-prices {version}" + (f", whose newest price is of {newest}" if newest else "")
