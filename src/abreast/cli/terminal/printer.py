"""Writes results to stdout from a thread, so that a slow reader never blocks the loop."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import SimpleQueue
from typing import Final, TypeAlias

from abreast.cli.errors import FAILED, PIPE_CLOSED, UsageError, os_error_text
from abreast.cli.terminal.visible import for_file

STDOUT: Final = 1
STDERR: Final = 2

Piece: TypeAlias = tuple[int, bytes]
_Job: TypeAlias = "tuple[Sequence[Piece], asyncio.Future[None]]"


class OutputLost(UsageError):
    """Nothing more can be written to stdout; the message is empty if its reader has ended."""

    def __init__(self, sentence: str = "", code: int = PIPE_CLOSED) -> None:
        """By default, the reader has ended (`| head`)."""
        super().__init__(sentence, code)


class Printer:
    """Writes pieces to stdout and stderr, in order.

    It is created inside the running loop; its thread is a daemon. `around` is entered while it
    writes: it erases a live line on the same terminal, and draws it again.
    """

    def __init__(self, around: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._around = around
        threading.Thread(target=self._write_forever, name="abreast-printer", daemon=True).start()

    async def write(self, pieces: Sequence[Piece]) -> None:
        """Write the pieces, and wait until they are written.

        Raises `OutputLost` when stdout can't be written. Errors of writing to stderr are ignored.
        """
        if pieces:
            written: asyncio.Future[None] = self._loop.create_future()
            self._jobs.put((pieces, written))
            await written

    def _write_forever(self) -> None:
        while True:
            pieces, written = self._jobs.get()
            error: BaseException | None = None
            try:
                with self._around():
                    for where, data in pieces:
                        write_all(where, data)
            except BaseException as raised:  # noqa: BLE001 - raised again in `write`
                error = raised
            with suppress(RuntimeError):  # the loop is closed, so nothing waits for it
                self._loop.call_soon_threadsafe(_settle, written, error)


def write_all(where: int, data: bytes) -> None:
    """Write all bytes to a file descriptor, also to a non-blocking one.

    Control characters are escaped if it is a terminal.
    """
    rest = memoryview(for_file(where, data))
    while rest:
        try:
            rest = rest[os.write(where, rest) :]
        except BlockingIOError:
            os.set_blocking(where, True)
        except OSError as error:
            if where == STDERR:
                return
            if error.errno == errno.EPIPE:
                raise OutputLost from None
            raise OutputLost(
                f"the results can't be written to stdout: {os_error_text(error)}", FAILED
            ) from None


def _settle(written: asyncio.Future[None], error: BaseException | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
