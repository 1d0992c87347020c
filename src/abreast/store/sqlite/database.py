"""One SQLite file: its connections, its transactions and its schema."""

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK, pause
from abreast.core.errors import StoreCorrupt, StoreError, StoreGone, StoreNewer, StoreReadOnly
from abreast.store.os_errors import as_store_error
from abreast.store.sqlite.sql import migrations

APPLICATION_ID: Final = 0x61627265  # "abre": tells a store from other SQLite databases
MAX_IDLE_READERS: Final = 4  # read connections kept open between uses
RETRY_INTERVAL: Final = 0.01  # seconds between tries of a statement while the database is busy
# Seconds that SQLite's own busy handler may wait at a time: during that Python handles no signal.
MAX_SQLITE_WAIT: Final = 0.1
_fsync: Final = getattr(os, "fdatasync", os.fsync)


class Database:
    """One write connection behind a lock, and one read connection for each concurrent reader."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        """Open or create the file (mode 0600, parents too), and migrate its schema."""
        self.path = path
        self._busy_timeout = busy_timeout
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._log: int | None = None  # SQLite's log, which exists while a connection is open
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._refusal: str | None = None
        with as_store_error(path):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            _make_file(path)
            self._writer = self._connect()
            try:
                self._prepare(self._writer)
                self._file = self._identity()
            except BaseException:
                self._writer.close()
                raise

    @contextmanager
    def writing(self, *, sync: bool = True) -> Iterator[sqlite3.Connection]:
        """One write transaction, which is on disk afterwards.

        It takes the write lock at once, so that it never has to be upgraded. Without `sync` it
        survives a kill of this process, but not a crash of the machine.
        """
        with self._lock, as_store_error(self.path):
            self._check_open(writes=True)
            self._check_there()
            with self._transaction(self._writer):
                yield self._writer
        if sync:
            self.sync()

    def sync(self) -> None:
        """Flush everything committed so far to the disk, as `synchronous = FULL` does each time."""
        with self._syncing, as_store_error(self.path):
            self._check_open()
            if self._log is None:
                self._log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            _fsync(self._log)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent read transaction, which neither waits for the writer nor blocks it."""
        with as_store_error(self.path):
            self._check_open()
            self._check_there()
            try:
                db = self._idle.pop()
            except IndexError:
                db = self._connect(query_only=True)
            try:
                db.execute("BEGIN")
                yield db
                db.execute("COMMIT")
            except BaseException:
                db.close()
                raise
            if self._closed or len(self._idle) >= MAX_IDLE_READERS:
                db.close()
            else:
                self._idle.append(db)

    @contextmanager
    def reading_damaged(self) -> Iterator[sqlite3.Connection]:
        """A connection without a transaction: SQLite could not end one after an error."""
        with as_store_error(self.path):
            self._check_open()
            self._check_there()
            with closing(self._connect(query_only=True)) as db:
                yield db

    def tidy(self) -> None:
        """Give free space back to the disk."""
        with self._lock, as_store_error(self.path):
            self._check_open(writes=True)
            self._execute_with_retries(self._writer, "VACUUM")
            self._execute_with_retries(self._writer, "PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close every connection that isn't in use; the others close after their use."""
        with self._lock, self._syncing, as_store_error(self.path):
            self._closed = True
            if self._log is not None:
                os.close(self._log)
                self._log = None
            while self._idle:
                self._idle.pop().close()
            self._writer.close()

    def refuse_writes(self, sentence: str) -> None:
        """Raise `StoreReadOnly` with this message for every write from now on."""
        self._refusal = sentence

    def _check_open(self, *, writes: bool = False) -> None:
        if self._closed:
            raise StoreError(f"{self.path} was closed")
        if writes and self._refusal is not None:
            raise StoreReadOnly(self._refusal)

    def _check_there(self) -> None:
        """Refuse to use a file that was removed or replaced: its records could not be found."""
        try:
            is_there = self._identity() == self._file
        except (FileNotFoundError, NotADirectoryError):
            is_there = False
        except OSError:  # not known, for example if the directory may not be read any more
            is_there = True
        if not is_there:
            raise StoreGone(
                f"{self.path} was removed or replaced while it was in use: "
                "nothing more can be recorded"
            )

    def _identity(self) -> tuple[int, int]:
        facts = os.stat(self.path)  # noqa: PTH116 - runs before every transaction
        return facts.st_dev, facts.st_ino

    def _connect(self, *, query_only: bool = False) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            timeout = self._busy_timeout if query_only else min(self._busy_timeout, MAX_SQLITE_WAIT)
            db.execute(f"PRAGMA busy_timeout = {round(timeout * 1000)}")
            # `sync` flushes the log, separately from the commits.
            db.execute("PRAGMA synchronous = NORMAL")
            if query_only:
                db.execute("PRAGMA query_only = ON")
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        scripts = migrations()
        version = self._version(db, newest=len(scripts))
        self._use_wal(db)
        while version < len(scripts):
            with self._transaction(db):
                # Another process may have migrated it meanwhile.
                version = self._version(db, newest=len(scripts))
                if version < len(scripts):
                    _run_script(db, scripts[version])
                    version += 1
                    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    db.execute(f"PRAGMA user_version = {version}")

    @contextmanager
    def _transaction(self, db: sqlite3.Connection) -> Iterator[None]:
        self._execute_with_retries(db, "BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            # SQLite may have rolled back by itself; the first error is the one to raise.
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise

    def _version(self, db: sqlite3.Connection, newest: int) -> int:
        application, version, tables = db.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if application != APPLICATION_ID and (application or version or tables):
            raise StoreCorrupt(
                f"{self.path} is a database of another program, not an abreast store"
            )
        if version > newest:
            raise StoreNewer(
                f"{self.path} has schema version {version}, made by a later abreast; "
                f"this one knows up to {newest}"
            )
        return int(version)

    def _use_wal(self, db: sqlite3.Connection) -> None:
        """Turn on SQLite's write-ahead log.

        While another process does the same, SQLite refuses without waiting.
        """
        (mode,) = self._execute_with_retries(db, "PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(
                f"{self.path} is on a file system that SQLite can't keep a write-ahead log on"
            )

    def _execute_with_retries(self, db: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
        """Execute a statement, and try again while the database is busy, up to `busy_timeout`."""
        deadline = SYSTEM_CLOCK.now() + self._busy_timeout
        while True:
            try:
                return db.execute(statement)
            except sqlite3.OperationalError as error:
                if (
                    error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY
                    or SYSTEM_CLOCK.now() >= deadline
                ):
                    raise
                pause(RETRY_INTERVAL)


def _make_file(path: str) -> None:
    """Create the file unless it exists; OSError if it can't be a store.

    An existing file is not opened. Closing it again would release every lock that SQLite holds on
    it for this process; then another process could take itself for the last user of the store and
    remove the log that this process writes to.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if Path(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
        if not os.access(
            path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids
        ):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None


def _run_script(db: sqlite3.Connection, script: str) -> None:
    """Run a script inside the open transaction; `executescript` would commit it first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
