"""The store in memory, for tests and for short-lived runs: SQLite's, without a file."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Self

from abreast.store.driver_locks import DriverLocks
from abreast.store.os_errors import as_store_error
from abreast.store.sqlite.database import Database
from abreast.store.sqlite.store import SqliteStore
from abreast.store.sqlite.verify import RunVerifier

_NAME = "memory:"


class MemoryDatabase(Database):
    """One connection, which one thread uses at a time; `close` keeps it."""

    def __init__(self) -> None:
        self.path = _NAME
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._busy_timeout = 0.0
        self._holding = threading.RLock()
        self._prepare(self.connection)

    def __del__(self) -> None:
        self.connection.close()

    @contextmanager
    def writing(self, *, sync: bool = True) -> Iterator[sqlite3.Connection]:  # noqa: ARG002 - no disk
        """One write transaction."""
        with self.reading() as db, self._transaction(db):
            yield db

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A time without a transaction of another thread; may be within one of this thread."""
        with self._holding, as_store_error(self.path):
            yield self.connection

    reading_damaged = reading

    def sync(self) -> None:
        """Do nothing: there is no disk."""

    def tidy(self) -> None:
        """Do nothing: memory is freed as runs are removed."""

    def close(self) -> None:
        """Do nothing: what is stored is lost with the object."""

    def _use_wal(self, db: sqlite3.Connection) -> None:
        pass  # there is no log either


class MemoryLocks(DriverLocks):
    """The driver locks of a store in memory: the numbers of its driven runs."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self, number: int) -> bool:
        """Take the lock of a run; False if it has a driver."""
        if number in self._taken:
            return False
        self._taken.add(number)
        return True

    def is_taken(self, number: int) -> bool:
        """Whether the run has a driver."""
        return number in self._taken

    def free(self, number: int, *, for_good: bool = False) -> None:  # noqa: ARG002 - no file
        """Release a run's lock, if it is held."""
        self._taken.discard(number)

    def empty(self, number: int) -> None:
        """Do nothing: there is no file."""

    def close(self) -> None:
        """Release all locks."""
        self._taken.clear()


class MemoryStore(SqliteStore):
    """Runs in memory, lost with the object.

    Any thread may use it; `close` only stops driving its runs.
    """

    _db: MemoryDatabase
    _checks = False

    def __init__(self) -> None:
        self.path = self.url = _NAME
        self._db = MemoryDatabase()
        self._verifier = RunVerifier(_NAME)
        self._locks = MemoryLocks()
        self._driving = {}
        self._written = {}

    @classmethod
    def load(cls, path: str) -> Self:
        """A store with the contents of a `backup`; its runs are not driven."""
        store = cls()
        source = f"{Path(path).absolute().as_uri()}?mode=ro"
        with as_store_error(path), closing(sqlite3.connect(source, uri=True)) as saved:
            saved.backup(store._db.connection)
        return store

    def driven(self, run_id: str) -> bool:
        """Whether the run is driven now."""
        return self._locks.is_taken(self._number(run_id))

    def _try_lock(self, number: int) -> bool:
        return self._locks.take(number)

    def _commit_notes(self, db: sqlite3.Connection, number: int) -> bool:  # noqa: ARG002 - no notes
        return True
