"""Resumes a recorded map from its manifest, for `abreast resume` and `abreast retry`."""

from __future__ import annotations

import os
from typing import Final

from abreast.cli import options
from abreast.cli.errors import UsageError
from abreast.cli.jobs.map.driver import MapDriver, MapStart, OutputOptions, check_work
from abreast.cli.jobs.map.input_lines import check_input
from abreast.cli.jobs.map.job import INPUT, MapJob
from abreast.cli.jobs.map.recorded import tally
from abreast.cli.stores import StoreChoice
from abreast.cli.terminal.live_line import LiveLine, wants_progress
from abreast.core.events import ITEM_READ, ITEMS_COMPLETE, count_read
from abreast.core.item import escape
from abreast.jobs.map.view import MapLive
from abreast.run.run import Resume
from abreast.store.port import RunRow, Store
from abreast.views.progress import RunProgress

_EVENTS_PER_PAGE: Final = 1000


def resume_map(
    store: Store,
    row: RunRow,
    job: MapJob,
    choice: StoreChoice,
    *,
    resume: Resume,
    keys: tuple[str, ...] = (),
    as_json: bool,
    quiet: bool,
) -> int:
    """Resume a map's run; return the exit code."""
    complete = _input_complete(store, row)
    _check(row, job, complete=complete)
    view = OutputOptions(as_json, quiet, options.is_verbose())
    progress = _progress(store, row, complete=complete) if wants_progress() and not quiet else None
    start = MapStart(
        row.name,
        resume=resume,
        run_id=row.id,
        retry_keys=keys,
        input_complete=complete,
        input_lost=not complete and not store.events(row.id, kinds={ITEM_READ}, limit=1),
    )
    with MapDriver(job, start, choice, view, progress) as driver:
        return driver.run(store)


def _check(row: RunRow, job: MapJob, *, complete: bool) -> None:
    """Raise `UsageError` for errors that are visible before the run is taken over."""
    if not os.path.isdir(job.cwd):  # noqa: PTH112 - a recorded text, not a Path
        raise UsageError(
            f"{row.id} ran in {job.cwd}, which is gone; put it back, for its commands run there"
        )
    check_work(job)
    if complete:
        return
    if job.input is not None:
        check_input(job.input)
    elif os.isatty(0):
        raise UsageError(
            f"the input of {row.id} was cut off before it was read to its end; "
            f"hand the same items in again: abreast resume {row.id} < items"
        )


def _input_complete(store: Store, row: RunRow) -> bool:
    return bool(
        store.events(row.id, kinds={ITEMS_COMPLETE}, prefix=f"{escape(row.name)}/{INPUT}", limit=1)
    )


def _progress(store: Store, row: RunRow, *, complete: bool) -> LiveLine:
    count = tally(store, row.id)
    read = after = 0
    while page := store.events(row.id, after=after, kinds={ITEM_READ}, limit=_EVENTS_PER_PAGE):
        read, after = read + sum(map(count_read, page)), page[-1].seq
    before = RunProgress(read=read, complete=complete, done=count.done, failed=count.failed)
    return LiveLine(MapLive(row.id, before))
