"""Resumes a workflow from its manifest and its journal, with new inputs if some are given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from abreast.cli.errors import UsageError
from abreast.cli.jobs.map.driver import OutputOptions
from abreast.cli.jobs.workflow.driver import (
    WorkflowDriver,
    WorkflowFile,
    WorkflowStart,
    split_inputs,
)
from abreast.cli.stores import StoreChoice
from abreast.jobs.workflow.inputs import resolve_inputs
from abreast.store.port import JsonValue, RunRow, Store


def resume_workflow(
    store: Store,
    row: RunRow,
    choice: StoreChoice,
    view: OutputOptions,
    words: Sequence[str],
    *,
    retry: bool,
    budget: str | None,
    width: int | None = None,
) -> int:
    """Resume it; return the exit code. Steps that did not succeed run again.

    With `retry`, steps that may have been done run again too.
    """
    source = WorkflowFile.of_run(store, row)
    cwd = str(row.manifest.get("cwd") or ".")
    if not os.path.isdir(cwd):  # noqa: PTH112 - a recorded text, not a Path
        raise UsageError(
            f"{row.id} ran in {cwd}, which is gone; put it back, for its commands run there"
        )
    given, verdicts = split_inputs(words, source.workflow())
    changed = replace(
        source.with_more(given, verdicts),
        budget=budget or source.budget,
        width=width or source.width,
    )
    driver = WorkflowDriver(changed, choice, view, cwd=cwd)
    with suppress(ValueError):
        before = [
            replace(one, required=one.required and not one.secret) for one in driver.workflow.inputs
        ]
        driver.print_changes(resolve_inputs(before, source.given))
    kept: dict[str, JsonValue] = {
        name: value for name, value in given.items() if name not in driver.secret_names
    }
    more: dict[str, JsonValue] = (
        {"given": kept, "verdicts": dict(verdicts)} if kept or verdicts else {}
    )
    return driver.run(
        store,
        WorkflowStart(row.name, resume="retry" if retry else "failed", run_id=row.id, more=more),
    )
