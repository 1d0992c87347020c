"""One PostgreSQL database: its connections, which may be lost at any time, and its schema.

It works through PgBouncer in transaction mode: nothing outlives a transaction on the server. There
are no session locks, no settings of a session, no prepared statements and no pipelines.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from abreast.core.clock import SYSTEM_CLOCK, pause
from abreast.core.errors import StoreCorrupt, StoreError, StoreNewer, StoreUnreachable
from abreast.store.postgres.address import PostgresAddress
from abreast.store.postgres.answer_watch import ANSWER_SECONDS, AnswerWatch
from abreast.store.postgres.server_errors import as_store_error, is_starting, may_pass
from abreast.store.postgres.sql import migrations, quoted, sql
from abreast.store.rows import Row

T = TypeVar("T")
Connection = psycopg.Connection[Row]

MAX_CONNECTIONS: Final = 8
MAX_IDLE: Final = 60.0  # seconds until a connection that nothing uses is closed
CONNECT_WAIT: Final = 0.5  # seconds to wait for a connection before asking why there is none
RETRY_INTERVAL: Final = 0.05  # seconds between tries after a lost connection
# Of a large run, the server would compile each query for half a second, and execute it in 30 ms.
BEGIN_READING: Final = "BEGIN READ ONLY; SET LOCAL jit = off"
MIGRATION_LOCK: Final = 0x61627265  # "abre": a lock that ends with its transaction

# The pool logs each failed try to connect. Whether the failure matters is decided here.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


class PostgresDatabase:
    """A pool of connections, and work that is done again when its connection was lost."""

    def __init__(
        self,
        address: PostgresAddress,
        *,
        busy_timeout: float,
        reconnect_timeout: float,
        answer_timeout: float = ANSWER_SECONDS,
    ) -> None:
        """Connect, and create or migrate the tables.

        A server that is starting is waited for, up to `busy_timeout` seconds. Later, work whose
        connection was lost is tried again for `reconnect_timeout` seconds if it writes, else for
        `busy_timeout` seconds. A server that does not answer for twice `answer_timeout` seconds is
        taken for lost.

        Raises `StoreUnreachable` if there is no connection.
        """
        self.url = address.url
        self._address = address
        self._busy_timeout = busy_timeout
        self._reconnect_timeout = reconnect_timeout
        self._closed = False
        self._opening = threading.Lock()
        self._options = {**address.parameters, "autocommit": True, "prepare_threshold": None}
        self._watch = AnswerWatch(self.connect, answer_timeout)
        try:
            self._retry(self._prepare_once, busy_timeout, is_starting)
        except StoreError as error:
            self._watch.close()
            cause = error.__cause__
            if isinstance(cause, psycopg.Error) and may_pass(cause):
                raise StoreUnreachable(str(error)) from cause
            raise
        self._pool = ConnectionPool(
            kwargs=self._options,
            min_size=0,
            max_size=MAX_CONNECTIONS,
            max_idle=MAX_IDLE,
            reconnect_timeout=0,  # each try is one of `_retry`
            num_workers=1,
            name="abreast",
            open=False,
        )

    def sql(self, name: str) -> bytes:
        """The statement in `name.sql`, for the tables of this store."""
        return sql(name, self._address.schema)

    def table(self, name: str) -> str:
        """A table of this store, as SQL names it."""
        return f"{quoted(self._address.schema)}.{name}"

    def read(self, work: Callable[[Connection], T]) -> T:
        """Do `work` in a transaction that writes nothing; it is done again if that was lost."""

        def in_transaction(db: Connection) -> T:
            db.execute(BEGIN_READING)
            try:
                return work(db)
            finally:
                if not db.closed:
                    db.execute("ROLLBACK")

        return self._retry(lambda: self._use(in_transaction), self._busy_timeout)

    def write(self, work: Callable[[Connection], T], *, patience: float | None = None) -> T:
        """Do `work`, which must have the same effect once or twice, with a connection.

        A lost connection may be lost before or after the server committed: the work is done again.
        """
        timeout = self._reconnect_timeout if patience is None else patience
        return self._retry(lambda: self._use(work), timeout)

    def transact(self, work: Callable[[Connection], T], *, patience: float | None = None) -> T:
        """Do `work` in one transaction, which is on disk afterwards; otherwise as `write`."""

        def in_transaction(db: Connection) -> T:
            with db.transaction():
                db.execute(self.sql("wait_for_disk"))
                return work(db)

        return self.write(in_transaction, patience=patience)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._pool.close()
        self._watch.close()

    def connect(self) -> Connection:
        """A connection of its own, for the caller to close."""
        try:
            return psycopg.connect(**self._options)  # type: ignore[arg-type]
        except psycopg.errors.ConnectionTimeout:
            seconds = self._options["connect_timeout"]
            raise psycopg.errors.ConnectionTimeout(
                f"it does not answer; given up after {seconds} seconds (connect_timeout)"
            ) from None

    def _use(self, work: Callable[[Connection], T]) -> T:
        if self._closed:
            raise StoreError(f"{self.url} was closed")
        with self._opening:
            if self._pool.closed:
                self._pool.open()
        try:
            connection = self._pool.getconn(CONNECT_WAIT)
        except PoolTimeout:
            self.connect().close()  # raises the reason, unless all connections are in use
            raise
        try:
            with self._watch.watching(connection):
                return work(connection)
        finally:
            self._pool.putconn(connection)

    def _retry(
        self,
        work: Callable[[], T],
        patience: float,
        is_worth_it: Callable[[psycopg.Error], bool] = may_pass,
    ) -> T:
        deadline = SYSTEM_CLOCK.now() + patience
        with as_store_error(self.url):
            while True:
                try:
                    return work()
                except psycopg.Error as error:
                    if self._closed or not is_worth_it(error) or SYSTEM_CLOCK.now() >= deadline:
                        raise
                pause(RETRY_INTERVAL)

    def _prepare_once(self) -> None:
        with self.connect() as db, self._watch.watching(db):
            self._prepare(db)

    def _prepare(self, db: Connection) -> None:
        """Create or migrate the tables; a store of this version is only read."""
        newest = len(migrations())
        if self._version(db, newest) == newest:
            return
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            # Another process may have migrated it meanwhile.
            version = self._version(db, newest)
            schema = self._address.schema
            if not version:
                db.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}".encode())
            for number, script in enumerate(migrations(schema), 1):
                if number > version:
                    db.execute(script.encode())
                    db.execute(self.sql("insert_migration"), {"version": number})

    def _version(self, db: Connection, newest: int) -> int:
        schema = self._address.schema
        [(is_store, others, encoding)] = db.execute(
            self.sql("find_version"), {"schema": schema}
        ).fetchall()
        if encoding != "UTF8":
            raise StoreError(
                f"{self.url} has the encoding {encoding}; a store needs a database in UTF8"
            )
        if not is_store:
            if others:
                raise StoreCorrupt(
                    f"{self.url} has a schema {schema!r} of another program, not an abreast store; "
                    "name another one with ?schema=NAME"
                )
            return 0
        [(version,)] = db.execute(self.sql("newest_migration")).fetchall()
        if version > newest:
            raise StoreNewer(
                f"{self.url} has schema version {version}, made by a later abreast; "
                f"this one knows up to {newest}"
            )
        return int(version)
