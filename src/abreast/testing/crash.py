"""Crashes for tests: a store that kills its own process before or after a chosen commit."""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from abreast.core.events import Event
from abreast.store.port import Store
from abreast.store.sqlite.store import SqliteStore


def crash_at(
    store: str | os.PathLike[str] | Store,
    commit: int,
    when: Literal["before", "after"] = "before",
) -> Store:
    """The same store, except that it kills the process before or after commit number `commit`.

    The signal is SIGKILL, as in a real crash. Use it in a child process, and resume in another:

        abreast.open_run("job", store=crash_at("runs.db", commit=3, when="after"))

    Args:
        store: the path of an SQLite store, or a Store.
        commit: at which commit to kill the process, from 1.
        when: whether that commit is still made.
    """
    opened = SqliteStore(os.fspath(store)) if isinstance(store, (str, os.PathLike)) else store
    return _CrashingStore(opened, commit, when)


class _CrashingStore:
    """Passes all calls on to a real store, until the chosen commit."""

    def __init__(self, store: Store, commit: int, when: str) -> None:
        self._store = store
        self._remaining = commit
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        """Commit, and kill the process if this is the chosen commit."""
        self._remaining -= 1
        if self._remaining == 0 and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        self._store.commit(run_id, epoch, events, spent)
        if self._remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)
