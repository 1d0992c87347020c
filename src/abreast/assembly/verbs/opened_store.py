"""The store of a verb, and the run in it that the verb goes on with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import NamedTuple

from abreast.assembly.names import find_store
from abreast.core.run_end import is_over
from abreast.run.lifetime import RESUME
from abreast.run.map.options import check_name
from abreast.run.run import Resume
from abreast.store.port import RunRow, Store


class FoundRun(NamedTuple):
    """How to open the run, and the id of the one to go on with; None for a new one."""

    resume: Resume
    run_id: str | None


@contextmanager
def opened_store(given: str | PathLike[str] | Store | None) -> Iterator[Store | None]:
    """Open a store; one that was open already stays open."""
    store = None if given is None else find_store(given)
    try:
        yield store
    finally:
        if store is not None and store is not given:
            store.close()


def find_unfinished(
    store: Store | None, name: str, kind: str, resume: Resume, same: Callable[[RunRow], bool]
) -> FoundRun:
    """Find the newest run of that name, if it is to be resumed.

    `same` says whether a run is about what is asked for now. With `resume="auto"`, a run that is
    not, or has ended, is left as it is and a new one starts. Otherwise it is a ValueError.
    """
    check_name(name)
    if resume not in RESUME:
        raise ValueError(f"resume must be one of {', '.join(RESUME)}, not {resume!r}")
    row = None if store is None or resume == "never" else store.newest(name)
    if row is None:
        if resume in ("auto", "never"):
            return FoundRun("never", None)
        return FoundRun(resume, None)  # to open it raises NoSuchRun
    fits = row.kind == kind and same(row)
    if resume == "auto":
        over = is_over(row.state, row.reason)
        return FoundRun("never", None) if over or not fits else FoundRun("failed", row.id)
    if not fits:
        raise ValueError(
            f"{row.id} was started with other arguments; give another name=, or resume='never'"
        )
    if resume == "must" and is_over(row.state, row.reason):
        return FoundRun(resume, None)  # to open it raises NoSuchRun
    return FoundRun("failed" if resume == "must" else resume, row.id)
