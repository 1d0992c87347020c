"""Claiming a run in its store: becoming its driver, saying from where, and starting its writer."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from abreast.core.errors import AbreastError, CancelRequested, NoSuchRun, StoreNewer
from abreast.core.events import BATCH_COMMITTED
from abreast.core.run_end import is_over
from abreast.core.seeds import FIRST_SEED_RULE, SEED_RULE, draw_seed
from abreast.core.version import VERSION
from abreast.store.port import ControlRequest, Driver, JsonValue, RunRow, Store
from abreast.store.writer import CommitListener, CommitWriter

if TYPE_CHECKING:
    from abreast.run.context import RunContext
    from abreast.run.lifetime import Opening

_SEED_RULE = "seed_rule"
_NOTED = 0.1  # seconds between two notes about commits


def claim(name: str, store: Store, opening: Opening) -> tuple[RunRow, bool]:
    """The run to drive, and whether it is an earlier one."""
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
            raise NoSuchRun(
                f"{store.url} has no {'unfinished ' if found else ''}run named {name!r} to go on with"
            )
    seed = draw_seed() if opening.seed is None else opening.seed
    manifest = {**_surroundings(), **opening.manifest, _SEED_RULE: SEED_RULE}
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


def _surroundings() -> dict[str, JsonValue]:
    """What a person needs to start the same thing again."""
    argv: list[JsonValue] = list(sys.argv)
    return {
        "script": sys.argv[0] if sys.argv else "",
        "argv": argv,
        "cwd": str(Path.cwd()),
        "abreast": VERSION,
        "python": platform.python_version(),
        "commit": _commit(Path.cwd()),
    }


def _commit(start: Path) -> str | None:
    """The git commit checked out here, read from git's own files: starting git would cost more than the rest."""
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
    """Start the run's writer, and have it tell the run what it must know."""
    listener = CommitListener(_committed(context), _failed(context), _requested(context))
    context.scribe = CommitWriter(store, row, listener, context.spent)


def _committed(context: RunContext) -> Callable[[int, float], None]:
    """Each batch is told of, several together where many come: there are hundreds in a second."""
    events: list[float] = []
    seconds: list[float] = []
    told = float("-inf")

    def note(count: int, took: float) -> None:
        nonlocal events, seconds, told
        # A batch that holds only the note about the batch before it is not worth a note of its own.
        if context.journal is None or count <= 1:
            return
        events.append(count)
        seconds.append(took)
        now = context.clock.now()
        if now - told >= _NOTED:
            told = now
            context.journal.emit(
                BATCH_COMMITTED, context.root.path, data={"events": events, "seconds": seconds}
            )
            events, seconds = [], []

    return note


def _failed(context: RunContext) -> Callable[[AbreastError], None]:
    return lambda error: context.root.stop(error, lost=True)


def _requested(context: RunContext) -> Callable[[Sequence[ControlRequest]], None]:
    def carry_out(requests: Sequence[ControlRequest]) -> None:
        for request in requests:
            if request.kind == "cancel" and context.root.stopped is None:
                context.root.stop(
                    CancelRequested(str(request.data.get("reason") or "cancelled by request"))
                )
            if context.store is not None:
                context.store.answer(request.id, context.clock.wall())

    return carry_out
