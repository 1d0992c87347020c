"""Errors of sqlite3 and the operating system as a `StoreError` in one sentence with the file."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, EISDIR, ENOSPC, EPERM, EROFS
from typing import Final

from abreast.core.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreReadOnly

_PRIMARY_CODE_MASK: Final = 0xFF  # SQLite's extended codes have the primary code in the low byte
_DISK_FULL_CODES: Final = frozenset(
    {
        # Over a quota or a limit of file size: SQLite reports only ENOSPC as SQLITE_FULL.
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_TRUNCATE,
    }
)

_UNDECODABLE: Final = "Could not decode to UTF-8"  # sqlite3's own message, without an error code


@contextmanager
def as_store_error(path: str) -> Iterator[None]:
    """Raise a `StoreError` about the store at `path` in place of an error of sqlite3 or the OS."""
    try:
        yield
    except sqlite3.Error as error:
        raise _of_sqlite(error, path) from error
    except UnicodeDecodeError as error:  # in a message of SQLite about a damaged schema
        raise StoreCorrupt(f"{path} is not an abreast store, or is damaged ({error})") from error
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{path} can't take a name with a lone surrogate in it: {error.object!r}"
        ) from error
    except OSError as error:
        raise _of_system(error, path) from error


def _of_sqlite(error: sqlite3.Error, path: str) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0)
    kind = code & _PRIMARY_CODE_MASK
    if kind == sqlite3.SQLITE_FULL or code in _DISK_FULL_CODES:
        return StoreFull(f"{path} can't grow: the disk is full, over quota or failing ({error})")
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLocked(f"{path} was kept locked by another process for too long")
    if (
        kind in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or code == sqlite3.SQLITE_IOERR_SHORT_READ
        or _UNDECODABLE in str(error)
    ):
        return StoreCorrupt(f"{path} is not an abreast store, or is damaged ({error})")
    if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreReadOnly(f"{path} can't be written, or its directory can't ({error})")
    if kind == sqlite3.SQLITE_CONSTRAINT:
        return StoreError(
            f"{path} has an event of that number already: what is recorded is never written over"
        )
    return StoreError(f"{path} can't be used: {error}")


def _of_system(error: OSError, path: str) -> StoreError:
    why = error.strerror or str(error)
    if error.errno in (ENOSPC, EDQUOT, EFBIG):
        return StoreFull(f"{path} can't grow: {why}")
    if error.errno in (EACCES, EPERM, EROFS):
        return StoreReadOnly(f"{path} can't be written, or its directory can't ({why})")
    if error.errno == EISDIR:
        return StoreCorrupt(f"{path} is a directory, not an abreast store")
    return StoreError(f"{path} can't be used: {why}")
