"""Crashes on demand: a store that kills its own process at a chosen boundary of the journal."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from abreast.core.events import Event
from abreast.store.port import Store


def crash_at(store: Store, commit: int, when: Literal["before", "after"] = "before") -> Store:
    """The same store, except that the process is killed (SIGKILL, as in life) before or after commit number `commit`.

    Nothing is jotted down in it ahead of the commits, so that before one there is nothing of what
    it holds. Use it in a child process, and resume in another:

        abreast.open_run("job", store=crash_at(SqliteStore("runs.db"), commit=3, when="after"))
    """
    return _CrashingStore(store, commit, when)


class _CrashingStore:
    """Passes everything on to a real store, until it is time."""

    def __init__(self, store: Store, commit: int, when: str) -> None:
        self._store = store
        self._left = commit
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def jot(self, *_: object) -> bool:
        """Leave it all to commits."""
        return False

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        """Write, unless this is the moment to die."""
        self._left -= 1
        if self._left == 0 and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        self._store.commit(run_id, epoch, events, spent)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
