"""Resumes a study from its manifest and its journal."""

from __future__ import annotations

from dataclasses import replace

from abreast.cli.jobs.map.driver import OutputOptions
from abreast.cli.jobs.matrix.driver import MatrixDriver, StudyFile
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
    """Resume it; return the exit code. With `retry`, failed cells are run again too."""
    source = StudyFile.of_run(store, row)
    driver = MatrixDriver(replace(source, budget=budget or source.budget), choice, view)
    return driver.run(store, row=row, resume="retry" if retry else "must")
