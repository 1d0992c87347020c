"""What a run's page shows for its kind of job, beside the lanes: one `view` module per job."""

import math
import threading
from importlib import import_module
from typing import Final, cast

from abreast.core.clock import SYSTEM_CLOCK
from abreast.store.port import RunRow, Store
from abreast.views.job_view import JobView, listed, mapping
from abreast.views.run_reader import Follower, shown_state

JOB_VIEWS: Final = {
    "sample": "abreast.jobs.sample.view:SampleView",
    "workflow": "abreast.jobs.workflow.view:WorkflowView",
    "matrix": "abreast.jobs.matrix.view:MatrixView",
    "candidates": "abreast.jobs.candidates.view:CandidatesView",
    "plan": "abreast.jobs.plan.view:PlanView",
    "map": "abreast.jobs.map.view:MapView",
}
"""The kinds of runs that are jobs, each with its view, as `module:Class`."""


class JobViewReader:
    """A run as its job shows it, as far as its journal was read.

    Each call of `view` reads only the events that are new since the last one.
    """

    def __init__(self, kind: str) -> None:
        """Read nothing yet. A run whose kind is not a job's is shown as a map."""
        self.kind = kind if kind in JOB_VIEWS else "map"
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
                module, _, name = JOB_VIEWS[self.kind].partition(":")
                self._fold = cast("JobView", getattr(import_module(module), name)())
            self._follower.read(store, run, self._fold.add, self._fold.KINDS, until)
            after = self._follower.after
            read = 1.0 if after >= run.last_seq else after / run.last_seq
            return self._fold.plain(run, shown_state(store, run)), read


def waiting_gates(store: Store, row: RunRow) -> dict[str, list[str]]:
    """The gates of a run that wait for a decision, with the options of each."""
    view, _ = JobViewReader(row.kind).view(store, row.id)
    gates = [mapping(gate) for gate in listed(view.get("gates"))]
    return {str(gate["gate"]): [str(option) for option in gate["options"]] for gate in gates}
