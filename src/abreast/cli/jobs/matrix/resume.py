"""Going on with a study: from its manifest and its journal."""

from __future__ import annotations

from dataclasses import replace

from abreast.cli.jobs.map.driver import OutputOptions
from abreast.cli.jobs.matrix.driver import StudyFile, Studying
from abreast.cli.stores import StoreChoice
from abreast.store.port import RunRow, Store


def resume_study(
    store: Store,
    row: RunRow,
    choice: StoreChoice,
    view: OutputOptions,
    *,
    retry: bool,
    budget: str | None,
) -> int:
    """Go on with it; the exit code. With `retry`, failed cells are run again too."""
    source = StudyFile.of_run(store, row)
    studying = Studying(replace(source, budget=budget or source.budget), choice, view)
    return studying.run(store, row=row, resume="retry" if retry else "must")
