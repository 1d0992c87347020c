"""One SQLite file: its connections, its transactions and its schema."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK, pause
from abreast.core.errors import StoreCorrupt, StoreError, StoreGone, StoreNewer, StoreReadOnly
from abreast.store.os_errors import one_sentence
from abreast.store.sqlite.sql import migrations

APPLICATION_ID: Final = (
    0x61627265  # "abre", so that `file` and we can tell a store from another database
)
_IDLE: Final = 4  # read connections kept open between uses
_FLUSH: Final = getattr(os, "fdatasync", os.fsync)
_RETRY: Final = (
    0.01  # seconds between two tries at the one statement SQLite's own busy handler doesn't cover
)
_SLICE: Final = 0.1  # seconds that SQLite may wait by itself: while it does, no signal is heard


class Database:
    """One write connection behind a lock, and as many read connections as there are readers at a time."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        """Open the file, or make it (mode 0600, parents too), and bring its schema up to date."""
        self.path = path
        self._busy_timeout = busy_timeout
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._log: int | None = (
            None  # the write-ahead log, which is there as long as a connection is
        )
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._refusal: str | None = None
        with one_sentence(path):
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
        """One transaction, taken for writing at once so that it never has to be upgraded, and on disk afterwards.

        Without `sync` it is in the file afterwards: that survives the end of this process, but not
        that of the machine.
        """
        with self._lock, one_sentence(self.path):
            self._check_open()
            self._check_writable()
            self._check_there()
            db = self._writer
            self._patiently(db, "BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(
                    sqlite3.Error
                ):  # SQLite may have rolled back by itself; the first error is to be told
                    db.execute("ROLLBACK")
                raise
        if sync:
            self.sync()

    def sync(self) -> None:
        """See to it that everything committed so far is on disk: what `synchronous = FULL` does at every commit."""
        with self._syncing, one_sentence(self.path):
            self._check_open()
            if self._log is None:
                self._log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            _FLUSH(self._log)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent look, which neither waits for the writer nor holds it up."""
        with one_sentence(self.path):
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
            if self._closed or len(self._idle) >= _IDLE:
                db.close()
            else:
                self._idle.append(db)

    @contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """The write connection outside a transaction."""
        with self._lock, one_sentence(self.path):
            self._check_open()
            self._check_writable()
            yield self._writer

    def tidy(self) -> None:
        """Give free room back to the disk."""
        with self.alone() as db:
            self._patiently(db, "VACUUM")
            self._patiently(db, "PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        """Close every connection that isn't in use; the others are closed after their use."""
        with self._lock, self._syncing, one_sentence(self.path):
            self._closed = True
            if self._log is not None:
                os.close(self._log)
                self._log = None
            while self._idle:
                self._idle.pop().close()
            self._writer.close()

    def refuse_writes(self, sentence: str) -> None:
        """Answer every write from now on with a `StoreReadOnly` that says this."""
        self._refusal = sentence

    def _check_writable(self) -> None:
        if self._refusal is not None:
            raise StoreReadOnly(self._refusal)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path} was closed")

    def _check_there(self) -> None:
        """Refuse to write to, or to read, a file that has no name any more: nobody would ever find it."""
        try:
            there = self._identity() == self._file
        except (FileNotFoundError, NotADirectoryError):
            there = False
        except OSError:  # it can't be known, as for a user who may not look there any more
            there = True
        if not there:
            raise StoreGone(
                f"{self.path} was removed or replaced while it was in use: nothing more can be recorded"
            )

    def _identity(self) -> tuple[int, int]:
        facts = os.stat(self.path)  # noqa: PTH116 - before every transaction
        return facts.st_dev, facts.st_ino

    def _connect(self, *, query_only: bool = False) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            patience = self._busy_timeout if query_only else min(self._busy_timeout, _SLICE)
            db.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")
            db.execute(
                "PRAGMA synchronous = NORMAL"
            )  # the log is flushed by `sync`, apart from the commits
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
            self._patiently(db, "BEGIN IMMEDIATE")
            try:
                version = self._version(
                    db, newest=len(scripts)
                )  # another process may have been faster
                if version < len(scripts):
                    _run_script(db, scripts[version])
                    version += 1
                    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    db.execute(f"PRAGMA user_version = {version}")
                db.execute("COMMIT")
            except BaseException:
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
                f"{self.path} has schema version {version}, made by a later abreast; this one knows up to {newest}"
            )
        return int(version)

    def _use_wal(self, db: sqlite3.Connection) -> None:
        """Turn on the write-ahead log.

        While another process does the same, SQLite refuses without waiting.
        """
        (mode,) = self._patiently(db, "PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(
                f"{self.path} is on a file system that SQLite can't keep a write-ahead log on"
            )

    def _patiently(self, db: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
        """Execute what others may hold up, and try again for as long as the store is patient."""
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
                pause(_RETRY)


def _make_file(path: str) -> None:
    """Make the file unless it is there; OSError if it can't be a store.

    One that is there is not opened: to close it again would end every lock that SQLite has on it
    for this process, and another process, which takes itself for the last, would remove the log
    that we write to.
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
