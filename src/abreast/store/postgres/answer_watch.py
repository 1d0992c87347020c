"""Ends connections of a server that has stopped answering, which TCP itself does not notice.

A statement may take minutes on a busy server, so time alone proves nothing. A server is given up
only if it does not answer a new connection either.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

import psycopg

from abreast.core.clock import SYSTEM_CLOCK
from abreast.store.rows import Row

ANSWER_SECONDS: Final = 10.0
"""So long may a statement take until the server is asked whether it answers, and that as well."""

Connection = psycopg.Connection[Row]


class AnswerWatch:
    """Watches connections in use, in a thread that is started with the first one."""

    def __init__(self, connect: Callable[[], Connection], seconds: float = ANSWER_SECONDS) -> None:
        """`connect` opens another connection to the same server."""
        self._connect = connect
        self._seconds = seconds
        self._used: dict[Connection, float] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watching(self, connection: Connection) -> Iterator[None]:
        """Within this context, raise OperationalError if the server does not answer any more."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="abreast-postgres", daemon=True)
            self._thread.start()
        self._used[connection] = SYSTEM_CLOCK.now() + self._seconds
        try:
            yield
        except psycopg.Error as error:
            if connection not in self._used:
                raise psycopg.OperationalError(
                    f"it has not answered for {2 * self._seconds:g} seconds"
                ) from error
            raise
        finally:
            self._used.pop(connection, None)

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(2 * self._seconds)

    def _run(self) -> None:
        while not self._closed.wait(self._seconds / 4):
            now = SYSTEM_CLOCK.now()
            late = [one for one, until in list(self._used.items()) if until < now]
            if not late:
                continue
            answers = self._answers()
            for connection in late:
                if answers and connection in self._used:
                    self._used[connection] = SYSTEM_CLOCK.now() + self._seconds
                elif self._used.pop(connection, None) is not None:
                    _shut_down(connection)

    def _answers(self) -> bool:
        """Whether the server answers a statement of a new connection."""
        answered = threading.Event()
        opened: list[Connection] = []

        def ask() -> None:
            with contextlib.suppress(psycopg.Error, OSError):
                with self._connect() as db:
                    opened.append(db)
                    db.execute("SELECT 1")
                answered.set()

        asking = threading.Thread(target=ask, name="abreast-postgres-probe", daemon=True)
        asking.start()
        asking.join(self._seconds)
        for connection in opened:
            if not answered.is_set():
                _shut_down(connection)
        return answered.is_set()


def _shut_down(connection: Connection) -> None:
    """Close the connection's socket beneath a thread that waits for it."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(connection.fileno())) as twin,
    ):
        twin.shutdown(socket.SHUT_RDWR)
