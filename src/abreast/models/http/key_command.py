"""Keys that a command prints, such as `gcloud auth print-access-token`."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Final, cast
from weakref import WeakKeyDictionary

from abreast.core.errors import KeyRefused
from abreast.core.outcome import Usage

_SECONDS: Final = 60.0  # for the command to end
_KILL_SECONDS: Final = 5.0  # for a killed command to be gone
_LARGEST: Final = 64 * 1024  # bytes of its output; a key is shorter


class KeyCommand:
    """The key that a command prints: run when a key is first needed, and when one is refused.

    Calls that wait for it at the same time share one run. The output is kept in memory only, and
    is no part of an error: neither is the command, which may have a secret in it. `place` is where
    it is configured, `folder` where it runs.
    """

    def __init__(
        self, command: str, place: str, folder: str | None = None, *, seconds: float = _SECONDS
    ) -> None:
        self._command, self._place, self._folder = command, place, folder
        self._seconds = seconds
        self._runs = 0
        self._key: str | None = None
        self._fault = ""
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    def __repr__(self) -> str:
        return f"<KeyCommand of {self._place}, run {self._runs} times>"

    async def key(self, refused: str | None = None) -> str:
        """The key; the command runs if there is none yet, or if it is the `refused` one.

        Raises KeyRefused if the command fails.
        """
        if self._key is not None and self._key != refused:
            return self._key
        runs = self._runs
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._runs == runs:  # else another call has run it meanwhile
                await self._run()
            if self._key is None:
                error = KeyRefused(f"{self._place}.api_key_command {self._fault}")
                error.usage = Usage()  # nothing was sent
                raise error
            return self._key

    async def _run(self) -> None:
        self._key = None
        try:
            # Starting is not timed: one that is cancelled waits for the end of what it has started.
            process = await self._start()
            async with asyncio.timeout(self._seconds):
                code, output = await _output(process)
        except TimeoutError:
            self._fault = f"did not end in {self._seconds:g} s"
        except OSError as error:
            self._fault = f"can't be run: {error.strerror}"
        else:
            self._fault = _fault(code, output)
            self._key = None if self._fault else output.decode().strip()
        self._runs += 1

    async def _start(self) -> Process:
        return await asyncio.create_subprocess_shell(
            self._command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            cwd=self._folder,
            start_new_session=True,
        )


async def _output(process: Process) -> tuple[int, bytes]:
    """Return its exit code and output; when this ends, so has the command."""
    output = cast("asyncio.StreamReader", process.stdout)
    try:
        return 0, await output.readexactly(_LARGEST)
    except asyncio.IncompleteReadError as error:
        return await process.wait(), error.partial
    finally:
        if process.returncode is None:
            await _kill(process, output)


async def _kill(process: Process, output: asyncio.StreamReader) -> None:
    """End a command that still runs, and the processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):  # a process outside of its group may hold the pipe open
        async with asyncio.timeout(_KILL_SECONDS):
            await output.read()  # `wait` returns only after the end of the pipe was read
            await process.wait()


def _fault(code: int, output: bytes) -> str:
    """What is wrong with a command that has ended; empty if nothing is."""
    if code != 0:
        return f"failed with exit code {code}; run it in a shell to see why"
    key = output.strip()
    if not key:
        return "printed nothing; it must print the key"
    if len(output) >= _LARGEST or not (key.isascii() and key.decode("ascii").isprintable()):
        return "printed something else than a key on one line"
    return ""
