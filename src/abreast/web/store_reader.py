"""The runs that pages show: each is read once for all pages, and then only its new events."""

import math
import threading
from collections import OrderedDict
from importlib import import_module
from typing import Final, Protocol, cast, runtime_checkable

from abreast.core.clock import SYSTEM_CLOCK
from abreast.store.port import RunRow, Store
from abreast.views.job_view import JobView, listed, mapping
from abreast.views.run_reader import Follower, shown_state
from abreast.views.run_view import RunView
from abreast.web.lane_window import window
from abreast.web.replies import Searches


@runtime_checkable
class StudyView(Protocol):
    """A job whose arms reply to the same inputs."""

    def cells_of(self, given: str) -> list[dict[str, object]]:
        """The `path`, `model`, `strategy` and `repeat` of the cells for one input."""


JOB_VIEWS: Final = {
    "sample": "abreast.jobs.sample.view:SampleView",
    "workflow": "abreast.jobs.workflow.view:WorkflowView",
    "matrix": "abreast.jobs.matrix.view:MatrixView",
    "candidates": "abreast.jobs.candidates.view:CandidatesView",
    "plan": "abreast.jobs.plan.view:PlanView",
    "map": "abreast.jobs.map.view:MapView",
}
"""The kinds of runs that are jobs, each with its view, as `module:Class`."""
_VIEWS: Final = {**JOB_VIEWS, "serve": "abreast.views.served:ServedView"}


class JobViewReader:
    """A run as its job shows it, as far as its journal was read.

    Each call of `view` reads only the events that are new since the last one.
    """

    def __init__(self, kind: str) -> None:
        """Read nothing yet. A run whose kind has no view is shown as a map."""
        self.kind = kind if kind in _VIEWS else "map"
        self._fold: JobView | None = None
        self._follower = Follower()
        self._lock = threading.Lock()

    def view(
        self, store: Store, run_id: str, seconds: float = math.inf
    ) -> tuple[dict[str, object], float]:
        """Read new events for at most `seconds`, and return what the job shows.

        The first value is in JSON's own types; the second says how much of the journal is read,
        from 0 to 1. Raises `NoSuchRun` if the run was removed.
        """
        run = store.get(run_id)
        until = SYSTEM_CLOCK.now() + seconds
        with self._lock:
            if self._fold is None:  # a job's module is imported on first use
                module, _, name = _VIEWS[self.kind].partition(":")
                self._fold = cast("JobView", getattr(import_module(module), name)())
            self._follower.read(store, run, self._fold.add, self._fold.KINDS, until)
            after = self._follower.after
            read = 1.0 if after >= run.last_seq else after / run.last_seq
            return self._fold.plain(run, shown_state(store, run)), read

    def cells_of(self, given: str) -> list[dict[str, object]]:
        """The cells of a study for one input, as far as it was read; none of another job."""
        with self._lock:
            fold: object = self._fold
            return fold.cells_of(given) if isinstance(fold, StudyView) else []


def waiting_gates(store: Store, row: RunRow) -> dict[str, list[str]]:
    """The gates of a run that wait for a decision, with the options of each."""
    view, _ = JobViewReader(row.kind).view(store, row.id)
    gates = [mapping(gate) for gate in listed(view.get("gates"))]
    return {str(gate["gate"]): [str(option) for option in gate["options"]] for gate in gates}


_MAX_OPEN_RUNS: Final = 6  # kept in memory; another run is read from its start again
_MAX_WINDOWS: Final = 8  # computed windows kept of a run that has ended
_DRIVER_CHECK_INTERVAL: Final = 5  # refreshes without an event between two checks for a driver
READ_SECONDS: Final = 0.25
"""The longest reading for one answer: a long journal is shown while it is still being read."""


class OpenRun:
    """One run, as far as its journal is read."""

    def __init__(self, store: Store, row: RunRow) -> None:
        self.row = row
        self.view = RunView()
        self.job = JobViewReader(row.kind)
        self.searches = Searches()
        self.lock = threading.Lock()
        self.state: str = row.state
        self.caught_up = False
        self.version = 0
        self._windows: dict[tuple[float, float, int], dict[str, object]] = {}
        self._store = store
        self._quiet_refreshes = 0
        self._kinds = RunView.KINDS if row.state == "running" else RunView.ENOUGH
        self._reader = Follower()
        self._refreshed = -READ_SECONDS

    @property
    def over(self) -> bool:
        """Whether nothing more will happen unless the run is resumed."""
        return self.state != "running"

    @property
    def now(self) -> float:
        """The run's own time: seconds that it was driven."""
        return (
            self.view.now
            if self.over or not self.caught_up
            else self.view.time.at(SYSTEM_CLOCK.wall())
        )

    def refresh(self, seconds: float = READ_SECONDS) -> bool:
        """Read new events for at most `seconds`; return whether anything changed.

        The caller holds the lock.
        """
        self._refreshed = SYSTEM_CLOCK.now()
        # The row is read before the events: the run counts as ended only after all its events.
        row = self._store.get(self.row.id)
        before = (self.version, self.state, self.caught_up)
        self._read(row, seconds)
        self.row = row
        if self.caught_up:
            self._check_driver(row)
        return before != (self.version, self.state, self.caught_up)

    def refresh_if_stale(self) -> None:
        """Refresh, unless that was done a moment ago.

        A page refreshes by its stream, but a program may request one part and nothing else.
        """
        if not self.caught_up or SYSTEM_CLOCK.now() - self._refreshed > 2 * READ_SECONDS:
            self.refresh()

    def _read(self, row: RunRow, seconds: float) -> None:
        if row.state == "running" and self._kinds is not RunView.KINDS:
            self._kinds = RunView.KINDS  # it was resumed
        if self._reader.read(
            self._store, row, self.view.add, self._kinds, SYSTEM_CLOCK.now() + seconds
        ):
            self.version += 1
            self._windows.clear()
        self.caught_up = row.last_seq <= self._reader.after

    def _check_driver(self, row: RunRow) -> None:
        """Set the state of the run to `crashed` if it is recorded as running but has no driver.

        The check takes a lock for a moment, so it is done only in some of the refreshes.
        """
        if row.state != "running":
            self.state, self._quiet_refreshes = row.state, 0
            return
        self._quiet_refreshes += 1
        if (
            self.state == "running"
            and self.version
            and self._quiet_refreshes % _DRIVER_CHECK_INTERVAL != 1
        ):
            return
        driven = self._store.driven(row.id)
        if (
            not driven
            and self.state != "crashed"
            and self._store.get(row.id).last_seq == self._reader.after
        ):
            self.view.cut()
            self.version += 1
        self.state = "running" if driven else "crashed"

    def window(self, begin: float, end: float, columns: int) -> dict[str, object]:
        """The lanes in a period; those of a run that has ended do not change, and are kept."""
        period = (begin, end, columns)
        if not self.over or period not in self._windows:
            if len(self._windows) >= _MAX_WINDOWS:
                del self._windows[next(iter(self._windows))]
            self._windows[period] = window(
                self.view, self.now, begin=begin, end=end, columns=columns
            )
        return self._windows[period]

    @property
    def progress(self) -> float:
        """How much of the journal is read, from 0 to 1."""
        return 1.0 if self.caught_up else self._reader.after / max(1, self.row.last_seq)


class StoreReader:
    """The open runs, the most recently used ones kept."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, run_id: str) -> OpenRun:
        """Return the open run, opening it if needed; raises `NoSuchRun` if there is none."""
        row = self.store.get(run_id)
        with self._lock:
            run = self._open.get(run_id)
            if run is None or run.row.created != row.created:
                run = self._open[run_id] = OpenRun(self.store, row)
            self._open.move_to_end(run_id)
            while len(self._open) > _MAX_OPEN_RUNS:
                self._open.popitem(last=False)
        return run
