"""The beginning and the end of a run: finding or making it in its store, and saying how it ended."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from abreast.core.clock import Clock
from abreast.core.errors import AbreastError, BudgetSpent, CancelRequested, Halted, NoSuchRun, StoreError
from abreast.core.events import BATCH_COMMITTED, RUN_ENDED, RUN_HALTED, RUN_RESUMED, RUN_STARTED
from abreast.core.seeds import draw_seed
from abreast.core.version import VERSION
from abreast.executors.port import Executor
from abreast.limits.gate import Gate
from abreast.run.hooks import observers_of
from abreast.run.journal import Journal
from abreast.run.setting import Setting
from abreast.store.port import ENDED, Driver, JsonValue, Request, RunRow, RunState, Store
from abreast.store.scribe import Listener, Scribe

if TYPE_CHECKING:
    from abreast.run.scope import Run

RESUME = ("auto", "never", "must", "retry")

_OBSERVER_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class Opening:
    """How a run is to be opened; made by `open_run`, used when its block is entered."""

    clock: Clock
    executor: Callable[[str | Executor | None], Executor]
    store: Callable[[], Store] | None = None
    own_store: bool = True
    seed: int | None = None
    resume: str = "auto"
    run_id: str | None = None
    kind: str = "script"
    tags: tuple[str, ...] = ()
    hooks: Sequence[object] = ()
    manifest: Mapping[str, JsonValue] = field(default_factory=dict)
    redact: Callable[[str, object], object] | None = None
    retry_keys: frozenset[str] = frozenset()


async def open_setting(run: Run, opening: Opening) -> Setting:
    """Find or make the run, start its writer, and note that it began."""
    clock = opening.clock
    observers = observers_of(opening.hooks)
    store = opening.store() if opening.store is not None else None
    row: RunRow | None = None
    resumed = False
    if store is not None:
        try:
            row, resumed = _claim(run.name, store, opening)
        except BaseException:
            if opening.own_store:
                store.close()
            raise
    seed = row.seed if row else draw_seed() if opening.seed is None else opening.seed
    setting = Setting(
        clock=clock, gate=Gate(clock), loop=asyncio.get_running_loop(), seed=seed, hooks=opening.hooks,
        executor=opening.executor, root=run, store=store, row=row, resumed=resumed,
        retry_failed=opening.resume == "retry", retry_keys=opening.retry_keys, redact=opening.redact,
        own_store=opening.own_store,
    )  # fmt: skip
    if row is not None and run.budget is not None and resumed:
        run.budget.restore(row.spent)
    if store is not None and row is not None:
        listener = Listener(_committed(setting), _failed(setting), _requested(setting))
        setting.scribe = Scribe(store, row, listener, setting.spent)
    if setting.scribe is not None or observers:
        setting.journal = Journal(clock, setting.scribe, observers, row.last_seq if row else 0)
        setting.journal.emit(RUN_RESUMED if resumed else RUN_STARTED, run.path, data={"seed": seed, "pid": os.getpid()})
    return setting


def _claim(name: str, store: Store, opening: Opening) -> tuple[RunRow, bool]:
    """The run to drive, and whether it is an earlier one."""
    clock = opening.clock
    driver = Driver(os.getpid(), socket.gethostname(), clock.wall(), Path(sys.argv[0] or "python").name)
    if opening.resume != "never":
        found = store.get(opening.run_id) if opening.run_id else store.newest(name)
        if found is not None and (found.state not in ENDED or opening.resume == "retry" or opening.run_id):
            return store.take_over(found.id, driver), True
        if opening.resume in ("must", "retry"):
            raise NoSuchRun(f"{store.url} has no {'unfinished ' if found else ''}run named {name!r} to go on with")
    seed = draw_seed() if opening.seed is None else opening.seed
    manifest = {**_surroundings(), **opening.manifest}
    row = store.begin(name, kind=opening.kind, seed=seed, manifest=manifest, tags=opening.tags, driver=driver)
    return row, False


def _surroundings() -> dict[str, JsonValue]:
    """What a person needs to start the same thing again."""
    argv: list[JsonValue] = list(sys.argv)
    return {
        "script": sys.argv[0] if sys.argv else "", "argv": argv, "cwd": str(Path.cwd()), "abreast": VERSION,
        "python": platform.python_version(), "commit": _commit(Path.cwd()),
    }  # fmt: skip


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


async def close_run(setting: Setting, error: BaseException | None) -> None:
    """Write the end, close the store, let observers see it."""
    state, reason = _how(setting.root.stopped or error, error)
    journal, scribe, store, row = setting.journal, setting.scribe, setting.store, setting.row
    if journal is not None:
        if state in ("halted", "spent", "cancelled", "interrupted"):
            journal.emit(RUN_HALTED, setting.root.path, data={"reason": reason or state})
        journal.emit(RUN_ENDED, setting.root.path, data={"state": state, "reason": reason})
    try:
        if scribe is not None and store is not None and row is not None:
            await scribe.close()
            if not scribe.broken:
                store.end(row.id, row.epoch, state, reason, setting.clock.wall())
    finally:
        if store is not None and row is not None:
            store.let_go(row.id)
            if setting.own_store:
                store.close()
        if journal is not None:
            journal.close(_OBSERVER_GRACE)


def _how(why: BaseException | None, error: BaseException | None) -> tuple[RunState, str]:
    """The run's last state, and the reason in one line."""
    if error is None and why is None:
        return "done", ""
    if isinstance(error, (asyncio.CancelledError, KeyboardInterrupt)) and not isinstance(why, StoreError):
        return "interrupted", "interrupted"
    for kind, state in _STATES:
        if isinstance(why, kind):
            return state, str(why)
    return "failed", f"{type(why).__name__}: {why}"


_STATES: tuple[tuple[type[BaseException], RunState], ...] = (
    (BudgetSpent, "spent"), (CancelRequested, "cancelled"), (Halted, "halted"),
)  # fmt: skip


def _committed(setting: Setting) -> Callable[[int, float], None]:
    def note(events: int, seconds: float) -> None:
        # A batch that holds only the note about the batch before it is not worth a note of its own.
        if setting.journal is not None and events > 1:
            setting.journal.emit(BATCH_COMMITTED, setting.root.path, data={"events": events, "seconds": seconds})

    return note


def _failed(setting: Setting) -> Callable[[AbreastError], None]:
    return lambda error: setting.root.stop(error, lost=True)


def _requested(setting: Setting) -> Callable[[Sequence[Request]], None]:
    def carry_out(requests: Sequence[Request]) -> None:
        for request in requests:
            if request.kind == "cancel" and setting.root.stopped is None:
                setting.root.stop(CancelRequested(str(request.data.get("reason") or "cancelled by request")))
            if setting.store is not None:
                setting.store.answer(request.id, setting.clock.wall())

    return carry_out
