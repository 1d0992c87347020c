"""Claiming a run in its store: become its driver, record the environment, start its writer."""

import os
import platform
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from abreast.core.errors import CancelRequested, NoSuchRun, StoreNewer
from abreast.core.events import BATCH_COMMITTED
from abreast.core.run_end import is_over
from abreast.core.seeds import FIRST_SEED_RULE, SEED_RULE, draw_seed
from abreast.core.version import VERSION
from abreast.run.context import Opening, RunContext
from abreast.store.port import ControlRequest, Driver, JsonValue, RunRow, Store
from abreast.store.postgres.address import without_password
from abreast.store.totals import RunTotals
from abreast.store.writer import WRITER_INTERVALS, CommitListener, CommitWriter

_SEED_RULE = "seed_rule"
COMMIT_REPORT_INTERVAL = 0.1  # seconds between two batch-committed events


def claim(name: str, store: Store, opening: Opening) -> tuple[RunRow, bool]:
    """The run to drive, and whether it existed before."""
    clock = opening.clock
    driver = Driver(
        os.getpid(), socket.gethostname(), clock.wall(), Path(sys.argv[0] or "python").name
    )
    if opening.resume != "never":
        found = store.get(opening.run_id) if opening.run_id else store.newest(name)
        if found is not None and (
            not is_over(found.state, found.reason)
            or opening.resume in ("failed", "retry")
            or opening.run_id
        ):
            seed_rule_of(found)
            return store.take_over(found.id, driver), True
        if opening.resume in ("must", "failed", "retry"):
            kind = "unfinished run" if found else "run"
            raise NoSuchRun(f"{store.url} has no {kind} named {name!r} to go on with")
    seed = draw_seed() if opening.seed is None else opening.seed
    # What is needed to start the same run again.
    environment: dict[str, JsonValue] = {
        "script": sys.argv[0] if sys.argv else "",
        "argv": [without_password(word) for word in sys.argv],
        "cwd": str(Path.cwd()),
        "abreast": VERSION,
        "python": platform.python_version(),
        "commit": _git_commit(Path.cwd()),
    }
    manifest = {**environment, **opening.manifest, _SEED_RULE: SEED_RULE}
    row = store.begin(
        name,
        kind=opening.kind,
        seed=seed,
        manifest=manifest,
        tags=opening.tags,
        driver=driver,
        run_id=opening.run_id,
    )
    return row, False


def seed_rule_of(row: RunRow) -> int:
    """The rule by which a run makes its seeds; the first, if it recorded none."""
    rule = row.manifest.get(_SEED_RULE, FIRST_SEED_RULE)
    if rule not in (FIRST_SEED_RULE, SEED_RULE):
        raise StoreNewer(
            f"{row.id} makes its seeds by rule {rule}, which this version of abreast does not know"
        )
    return FIRST_SEED_RULE if rule == FIRST_SEED_RULE else SEED_RULE


def _git_commit(start: Path) -> str | None:
    """The git commit checked out here, or None.

    It is read from git's own files: starting git would take longer than all the rest.
    """
    for folder in (start, *start.parents):
        head = folder / ".git" / "HEAD"
        if head.is_file():
            try:
                text = head.read_text().strip()
                if not text.startswith("ref: "):
                    return text
                ref = folder / ".git" / text.removeprefix("ref: ")
                return ref.read_text().strip() if ref.is_file() else None
            except OSError:
                return None
    return None


def start_writer(context: RunContext, store: Store, row: RunRow) -> None:
    """Start the run's commit writer, with callbacks for commits, failures and requests."""
    listener = CommitListener(
        _on_committed(context),
        lambda error: context.root.stop(error, lost=True),
        _on_requested(context),
    )
    context.totals = RunTotals(row)
    context.writer = CommitWriter(
        store, row, listener, context.spent, WRITER_INTERVALS, totals=context.totals
    )


def _on_committed(context: RunContext) -> Callable[[int, float], None]:
    """A callback that records the size and duration of each commit.

    One event reports several commits, because there can be hundreds of them in a second.
    """
    events: list[float] = []
    seconds: list[float] = []
    reported = float("-inf")

    def report(count: int, took: float) -> None:
        nonlocal events, seconds, reported
        # A batch that holds only the report of the batch before it is not reported itself.
        if context.journal is None or count <= 1:
            return
        events.append(count)
        seconds.append(took)
        now = context.clock.now()
        if now - reported >= COMMIT_REPORT_INTERVAL:
            reported = now
            context.journal.emit(
                BATCH_COMMITTED, context.root.path, data={"events": events, "seconds": seconds}
            )
            events, seconds = [], []

    return report


def _on_requested(context: RunContext) -> Callable[[Sequence[ControlRequest]], None]:
    def carry_out(requests: Sequence[ControlRequest]) -> None:
        for request in requests:
            if request.kind == "cancel" and context.root.stopped is None:
                context.root.stop(
                    CancelRequested(str(request.data.get("reason") or "cancelled by request"))
                )
            if context.store is not None:
                context.store.answer(request.id, context.clock.wall())

    return carry_out
