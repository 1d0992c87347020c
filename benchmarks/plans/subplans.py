"""Subplans side by side: fifteen at ten, and fifty at one to fifty."""

import tempfile
from pathlib import Path

from benchmarks.plans.loads import WIDTHS, makespan, plan_of


class FifteenAtTen:
    """Fifteen subplans of 0.1 s, ten at once."""

    params = (["memory", "store"],)
    param_names = ("kept",)
    unit = "x the best there can be"

    def setup(self, kept: str) -> None:
        self.plan = plan_of(15)
        self.folder = tempfile.TemporaryDirectory() if kept == "store" else None

    def teardown(self, kept: str) -> None:  # noqa: ARG002 - asv hands it over
        if self.folder is not None:
            self.folder.cleanup()

    def track_makespan(self, kept: str) -> float:  # noqa: ARG002 - asv hands it over
        return makespan(
            self.plan, 10, store=Path(self.folder.name, "runs.db") if self.folder else None
        )


class Curve:
    """Fifty subplans of 0.1 s, one to fifty at once."""

    params = (list(WIDTHS),)
    param_names = ("width",)
    unit = "x the best there can be"

    def setup(self, width: int) -> None:  # noqa: ARG002 - asv hands it over
        self.plan = plan_of(50)

    def track_makespan(self, width: int) -> float:
        return makespan(self.plan, width)
