"""Read-only stores: a store that can't be written is read through a temporary copy."""

import fcntl
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from abreast.store.driver_locks import DriverLocks
from abreast.store.os_errors import as_store_error
from abreast.store.sqlite.store import SqliteStore

COPY_NAME: Final = "store.db"


class CopiedStore(SqliteStore):
    """The runs of the store at `path` as they were when it was opened; a write is refused.

    SQLite can't read a store on a read-only mount, because it must write its log beside it. The
    copy holds what is in the log, and the notes of killed drivers of an earlier version. A write
    raises `StoreReadOnly`.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 30.0) -> None:
        """Copy the store; `close` removes the copy."""
        original = os.path.realpath(path)
        self._original_locks = DriverLocks(f"{original}-locks")
        self._folder = tempfile.TemporaryDirectory(prefix="abreast-store-")
        copy = Path(self._folder.name, COPY_NAME)
        try:
            with as_store_error(original):
                _copy_database(original, copy)
                _copy_notes(Path(f"{original}-locks"), Path(f"{copy}-locks"))
            super().__init__(copy, busy_timeout=busy_timeout)
        except BaseException:
            self._folder.cleanup()
            raise
        self.path, self.url = original, f"sqlite:///{original}"
        self._db.refuse_writes(
            f"{original} can't be written, or its directory can't: it was opened for reading"
        )

    def driven(self, run_id: str) -> bool:
        """Whether a process on this machine drives the run, by the lock beside the original."""
        return _is_locked(self._original_locks.path(self._number(run_id)))

    def close(self) -> None:
        """Close the copy and remove it."""
        super().close()
        self._folder.cleanup()


def _copy_database(original: str, copy: Path) -> None:
    """Copy through SQLite if a driver has the store open, else copy its file and its log."""
    if Path(f"{original}-shm").exists():
        try:
            with (
                closing(sqlite3.connect(f"{Path(original).as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
                return
        # The file was left by a killed driver, so nothing changes the files while they are copied;
        # or the store is damaged.
        except sqlite3.DatabaseError:
            copy.unlink(missing_ok=True)
    shutil.copyfile(original, copy)
    if Path(log := f"{original}-wal").exists():
        shutil.copyfile(log, f"{copy}-wal")


def _copy_notes(folder: Path, copies: Path) -> None:
    """Copy the notes of killed drivers; a driver that is alive commits its notes itself."""
    notes = [file for file in folder.glob("*.lock") if file.stat().st_size and not _is_locked(file)]
    if notes:
        copies.mkdir(mode=0o700)
    for file in notes:
        shutil.copyfile(file, copies / file.name)


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a run; works on a file that can't be written."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(opened)
    return False
