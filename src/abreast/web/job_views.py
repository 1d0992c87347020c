"""What each kind of job shows on its run's page, beside the lanes: one module per kind, each with one fold."""

from __future__ import annotations

import math
import threading
from importlib import import_module
from typing import Final, cast

from abreast.core.clock import SYSTEM_CLOCK
from abreast.store.port import RunRow
from abreast.views.job_view import JobFold, listed, mapping
from abreast.views.run_reader import RunReader

_VIEWS: Final = {
    "sample": ("abreast.jobs.sample.view", "SampleFold"),
    "workflow": ("abreast.jobs.workflow.view", "WorkflowFold"),
    "matrix": ("abreast.jobs.matrix.view", "MatrixFold"),
    "candidates": ("abreast.jobs.candidates.view", "CandidatesFold"),
    "plan": ("abreast.jobs.plan.view", "PlanFold"),
    "map": ("abreast.jobs.map.view", "MapFold"),
}


_OFTEN: Final = 64  # events between two looks at the clock


class Told:
    """A run as its job tells it, as far as it was read: only what is new is read when it is asked for again."""

    def __init__(self, kind: str) -> None:
        """Nothing is read yet. A run of a kind that is no job's is told as a map."""
        self.kind = kind if kind in _VIEWS else "map"
        self._fold: JobFold | None = None
        self._after = 0
        self._lock = threading.Lock()

    def view(
        self, journal: RunReader, seconds: float = math.inf
    ) -> tuple[dict[str, object], float]:
        """The picture in JSON's own types, after reading for so long at most.

        And how much is read, from 0 to 1.

        Raises `NoSuchRun` if the run was removed.
        """
        run: RunRow = (
            journal.run()
        )  # before its events: what comes in between is read the next time
        until = SYSTEM_CLOCK.now() + seconds
        with self._lock:
            if self._fold is None:  # jobs are imported when one is looked at
                module, name = _VIEWS[self.kind]
                self._fold = cast("JobFold", getattr(import_module(module), name)())
            for event in journal.events(self._fold.KINDS, after=self._after):
                self._fold.add(event)
                self._after = event.seq
                if event.seq % _OFTEN == 0 and SYSTEM_CLOCK.now() > until:
                    break
            else:
                self._after = max(self._after, run.last_seq)
            read = 1.0 if self._after >= run.last_seq else self._after / run.last_seq
            return self._fold.plain(run, journal.state(run)), read


def waiting_gates(journal: RunReader, kind: str) -> dict[str, list[str]]:
    """The gates of a run that wait for a decision, as its page shows them, and the options of each."""
    view, _ = Told(kind).view(journal)
    gates = [mapping(gate) for gate in listed(view.get("gates"))]
    return {str(gate["gate"]): [str(option) for option in gate["options"]] for gate in gates}
