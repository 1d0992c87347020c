"""The worker process: receives items from its driver, calls the function, sends replies.

    driver                               worker
      |--- Setup (once) ---------------->|  paths, arguments, authkey, `__main__`, the function
      |--- (value, luggage) ------------>|  one item at a time
      |<-- ASK number call --------------|  what the work asks of its driver, such as a model call
      |--- ANSWER number reply --------->|
      |<-- (True, value, "") ------------|
      |<-- (False, error, traceback) ----|
      |--- end of file ----------------->|  exits

A message is its length in eight bytes, its kind in one, then a pickle. Messages use a socket of
their own; the three standard streams stay the user's.
"""

import asyncio
import contextlib
import contextvars
import ctypes
import fcntl
import inspect
import io
import os
import pickle
import reprlib
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing import process, spawn
from typing import Any

from abreast.executors.port import DRIVER
from abreast.executors.replies import (
    dumps_by_reference,
    dumps_by_value,
    failure_reply,
    success_reply,
)
from abreast.executors.sources import ModuleSource
from abreast.executors.worker_channel import REPLY, WorkerChannel

_PR_SET_PDEATHSIG = 1
# A worker may be a driver itself; `__main__` of a driver is called `__mp_main__` in its workers.
_MAIN_MODULES = ("__main__", "__mp_main__")


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to every worker of a map.

    `prepare` and `main` are arguments of `multiprocessing.spawn.prepare`.
    """

    prepare: dict[str, Any]
    main: dict[str, str]
    function: bytes
    by_value: bool = False
    """Whether functions and classes without an importable name were pickled with their code."""
    source: ModuleSource | None = None
    """The file that the function is in, if it has to be the same where the worker is."""


def main(channel: int, lifeline: int, driver: int) -> None:
    """Serve the process `driver` until it closes the channel or ends."""
    die_with(driver, lifeline)
    for inherited in (channel, lifeline):
        os.set_inheritable(inherited, False)  # noqa: FBT003 - it has no keyword
    connection = WorkerChannel(socket.socket(fileno=channel))
    first = connection.receive()
    if first is None:
        return
    DRIVER.set(connection)
    worker = WorkerLoop(pickle.loads(first))  # noqa: S301 - from the process that started this one
    while (request := connection.receive()) is not None:
        reply = worker.answer(request)
        # What an item printed is shown even if a later item's worker is killed.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        connection.send(REPLY, reply)


# --- ending with the driver


def die_with(driver: int, lifeline: int) -> None:
    """Make this process and its whole group end with its driver, however the driver ends.

    The kernel does this in two ways. The lifeline is a pipe whose other end only the driver has:
    when that closes, the whole group is killed, whatever it is doing. The parent-death signal is
    for the case that a fork of the driver holds the pipe open too. It is not SIGKILL, because that
    could come first and end this process alone: the pipe then has no owner left, and the
    grandchildren would not be killed.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except (AttributeError, OSError):  # not Linux, or a sandbox that lacks some of it
        threading.Thread(
            target=_watch_lifeline, args=(lifeline,), name="abreast-lifeline", daemon=True
        ).start()
    signal.signal(signal.SIGHUP, _kill_group)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != driver:  # it ended before the lines above took effect
        _kill_group()


def _watch_lifeline(lifeline: int) -> None:
    os.read(lifeline, 1)
    _kill_group()


def _kill_group(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


# --- calling the function


class WorkerLoop:
    """Turns requests into replies.

    Everything that the function does becomes a reply, unless it ends the process.
    """

    def __init__(self, setup: Setup) -> None:
        """Set up modules and arguments as in the driver.

        The function is loaded with the first item, so that an error becomes that item's failure.
        """
        spawn.prepare(setup.prepare)
        self._setup = setup
        self._dumps = dumps_by_value() if setup.by_value else dumps_by_reference
        self._main_ready = False
        self._function: Callable[[Any], Any] | None = None
        self._load_failure: bytes | None = None

    def answer(self, request: bytearray) -> bytes:
        """Call the function with the item in `request`, in a context with only its luggage."""
        if self._function is None and self._load_failure is None:
            try:
                if self._setup.source is not None:
                    self._setup.source.check()
                self._function = self._load(self._setup.function)
            except BaseException as error:  # noqa: BLE001 - it fails every item of the map
                self._load_failure = failure_reply(error, "the function", __file__)
        if self._function is None:
            return self._load_failure or b""
        return contextvars.copy_context().run(self._call, self._function, request)

    def _call(self, function: Callable[[Any], Any], request: bytearray) -> bytes:
        item = "an item"
        try:
            value, luggage = self._load(request)
            item = f"item {reprlib.repr(value)}"
            for unpack in luggage:
                unpack()
            result = function(value)
            if inspect.isawaitable(result):
                result = asyncio.run(_await(result))
        except BaseException as error:  # noqa: BLE001 - SystemExit too is just this item's failure
            return failure_reply(error, item, __file__, self._dumps)
        return success_reply(result, item, self._dumps)

    def _load(self, pickled: bytes | bytearray) -> Any:
        if self._setup.by_value:
            return pickle.loads(pickled)  # noqa: S301 - from the process that started this one
        return _Loader(io.BytesIO(pickled), self._find_in_main).load()

    def _find_in_main(self, name: str, find: Callable[[str, str], object]) -> object:
        """Look up a name in the driver's script, which is imported only now."""
        # Importing it here and not in `__init__` spares it most workers, which never need it.
        if not self._main_ready:
            if not self._setup.main:
                raise TypeError(
                    f"{name} was defined interactively; "
                    "workers can find it only in a module or script"
                )
            here = process.current_process()
            # A script that starts processes when it is imported gets an error instead.
            vars(here)["_inheriting"] = True
            try:
                spawn.prepare(self._setup.main)
            finally:
                del vars(here)["_inheriting"]
            self._main_ready = True
        try:
            return find("__main__", name)
        except AttributeError as error:
            raise TypeError(
                f"{name} isn't there when {self._setup.main} is imported: put it in a module"
            ) from error


class _Loader(pickle.Unpickler):
    """An unpickler that looks up names of the driver's `__main__` with `find_in_main`."""

    def __init__(self, pickled: io.BytesIO, find_in_main: Callable[..., object]) -> None:
        super().__init__(pickled)
        self._find_in_main = find_in_main

    def find_class(self, module: str, name: str) -> object:
        """Return what `name` refers to in `module`."""
        return (
            self._find_in_main(name, super().find_class)
            if module in _MAIN_MODULES
            else super().find_class(module, name)
        )


async def _await(result: Awaitable[object]) -> object:
    return await result
