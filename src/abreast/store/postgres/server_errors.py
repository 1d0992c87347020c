"""Errors of PostgreSQL as a `StoreError` in one sentence; which of them may pass by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import psycopg
from psycopg import errors

from abreast.core.errors import (
    RunExists,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreGone,
    StoreLocked,
    StoreReadOnly,
)

_Kinds: TypeAlias = tuple[type[psycopg.Error], ...]

_CONNECTION_CLASS: Final = "08"
# A restart, a failover, a full server, and transactions that the server ended for a conflict.
_PASSING: Final = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.IdleSessionTimeout,
    errors.SerializationFailure,
    errors.DeadlockDetected,
)
_SITUATIONS: Final[tuple[tuple[_Kinds, type[StoreError], str], ...]] = (
    ((errors.DiskFull,), StoreFull, "can't grow"),
    (
        (errors.ReadOnlySqlTransaction, errors.InsufficientPrivilege),
        StoreReadOnly,
        "can't be written",
    ),
    ((errors.LockNotAvailable, errors.TooManyConnections), StoreLocked, "is busy"),
    (
        (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedFunction),
        StoreGone,
        "is not a store, or was removed while it was in use",
    ),
    ((errors.DataCorrupted, errors.IndexCorrupted), StoreCorrupt, "is damaged"),
)


def may_pass(error: psycopg.Error) -> bool:
    """Whether the same work may succeed when it is done again, on another connection."""
    if isinstance(error, _PASSING):
        return True
    if error.sqlstate is None:  # of the client: no connection, or it was lost
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return error.sqlstate.startswith(_CONNECTION_CLASS)


def is_starting(error: psycopg.Error) -> bool:
    """Whether a connection was refused because the server starts, stops or recovers.

    libpq has only the text of that. Of a server in another language, it is not recognised.
    """
    return error.sqlstate is None and "the database system is " in str(error)


@contextmanager
def as_store_error(url: str) -> Iterator[None]:
    """Raise a `StoreError` about the store at `url` in place of an error of psycopg.

    An OSError is one of reading a statement from its file: no descriptor may be free.
    """
    try:
        yield
    except psycopg.Error as error:
        raise store_error(error, url) from error
    except OSError as error:
        raise StoreError(f"{url} can't be used: {error.strerror or error}") from error
    except UnicodeEncodeError as error:
        raise StoreError(
            f"{url} can't take a name with a lone surrogate in it: {error.object!r}"
        ) from error


def store_error(error: psycopg.Error, url: str) -> StoreError:
    """The error in one sentence."""
    why = one_line(error)
    if isinstance(error, errors.UniqueViolation):
        if error.diag.table_name == "runs":
            return RunExists("there is a run of that id already; choose another id")
        return StoreError(
            f"{url} has an event of that number already: what is recorded is never written over"
        )
    for kinds, situation, sentence in _SITUATIONS:
        if isinstance(error, kinds):
            return situation(f"{url} {sentence}: {why}")
    return StoreError(f"{url} can't be {'reached' if may_pass(error) else 'used'}: {why}")


def one_line(error: psycopg.Error) -> str:
    """What the server or libpq says, without its details; neither ever says a password."""
    text = error.diag.message_primary or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
