"""The other end: what a worker process does, from its first moment to its driver's last.

    driver                                  worker
      |--- Setup (once) ------------------->|  paths, arguments, authkey, where `__main__` is, the function
      |--- (value, luggage) --------------->|  one item at a time
      |<-- (True, value, "") ---------------|
      |<-- (False, error, traceback) -------|
      |--- end of file -------------------->|  exits

A message is its length in eight bytes, then a pickle. They go over a socket of their own; the three
standard streams stay the user's.
"""

from __future__ import annotations

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
import struct
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from multiprocessing import process, spawn
from typing import Any

from abreast.core.errors import RecordedError

HEADER = struct.Struct("!Q")
_PR_SET_PDEATHSIG = 1
_MAIN = (
    "__main__",
    "__mp_main__",
)  # the second is what the first is called in a worker, which may be a driver too


@dataclass(frozen=True, slots=True)
class Setup:
    """What every worker of a map is told first: `prepare` and `main` are for `multiprocessing.spawn.prepare`."""

    prepare: dict[str, Any]
    main: dict[str, str]
    function: bytes


def main(channel: int, lifeline: int, driver: int) -> None:
    """Work for the process `driver` until it hangs up, or is no more."""
    die_with(driver, lifeline)
    for inherited in (channel, lifeline):
        os.set_inheritable(inherited, False)  # noqa: FBT003 - it has no keyword
    connection = socket.socket(fileno=channel)
    first = _receive(connection)
    if first is None:
        return
    desk = WorkerLoop(pickle.loads(first))  # noqa: S301 - from the process that started this one
    while (request := _receive(connection)) is not None:
        reply = desk.answer(request)
        # What an item printed is seen even if a later one is killed.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        connection.sendall(
            HEADER.pack(len(reply)) + reply
        )  # at once: two messages would wake the driver twice


def _receive(connection: socket.socket) -> bytearray | None:
    """The next message; None when there will be none."""
    header = _receive_exactly(connection, HEADER.size)
    return None if header is None else _receive_exactly(connection, HEADER.unpack(header)[0])


def _receive_exactly(connection: socket.socket, size: int) -> bytearray | None:
    message = bytearray(size)
    rest = memoryview(message)
    while rest:
        count = connection.recv_into(rest)
        if not count:
            return None
        rest = rest[count:]
    return message


# --- dying ------------------------------------------------------------------------------------------------------------


def die_with(driver: int, lifeline: int) -> None:
    """Have this process end with its driver, and its whole group with it, however the driver ends.

    The kernel sees to it twice over. The lifeline is a pipe whose other end only the driver has:
    when that closes, all of the group is killed, whatever it is doing. The parent-death signal is
    for the case that a fork of the driver holds the pipe open too. It is no SIGKILL, because that
    could come first and end this process alone: the pipe then has nobody left to tell of
    grandchildren.
    """
    try:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    except (AttributeError, OSError):  # not Linux, or a sandbox that hasn't all of it
        threading.Thread(
            target=_watch, args=(lifeline,), name="abreast-lifeline", daemon=True
        ).start()
    signal.signal(signal.SIGHUP, _end)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != driver:  # it ended before any of this
        _end()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    _end()


def _end(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


# --- working ----------------------------------------------------------------------------------------------------------


class WorkerLoop:
    """Turns requests into replies.

    Whatever the function does short of ending the process becomes one.
    """

    def __init__(self, setup: Setup) -> None:
        """Look like the driver; the function is looked up for the first item, which hears of trouble."""
        spawn.prepare(setup.prepare)
        self._setup = setup
        self._main_ready = False
        self._function: Callable[[Any], Any] | None = None
        self._unusable: bytes | None = None

    def answer(self, request: bytearray) -> bytes:
        """Call the function with the item in `request`, in a context that holds nothing but its luggage."""
        if self._function is None and self._unusable is None:
            try:
                self._function = self._load(self._setup.function)
            except BaseException as error:  # noqa: BLE001 - each item that was to use the function fails with it
                self._unusable = _failure(error, "the function")
        if self._function is None:
            return self._unusable or b""
        return contextvars.copy_context().run(self._work, self._function, request)

    def _work(self, function: Callable[[Any], Any], request: bytearray) -> bytes:
        item = "an item"
        try:
            value, luggage = self._load(request)
            item = f"item {reprlib.repr(value)}"
            for unpack in luggage:
                unpack()
            result = function(value)
            if inspect.isawaitable(result):
                result = asyncio.run(_finish(result))
        except BaseException as error:  # noqa: BLE001 - SystemExit too is just this item's failure
            return _failure(error, item)
        try:
            return pickle.dumps((True, result, ""), pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # noqa: BLE001 - a class may raise anything when it is pickled
            kind = _name(type(result))
            return _failure(
                TypeError(f"the value of {item}, a {kind}, can't leave its process: {error}"), item
            )

    def _load(self, pickled: bytes | bytearray) -> Any:
        return _Loader(io.BytesIO(pickled), self._find_in_main).load()

    def _find_in_main(self, name: str, find: Callable[[str, str], object]) -> object:
        """Something of the driver's script, which is imported only now: most workers never need it."""
        if not self._main_ready:
            if not self._setup.main:
                raise TypeError(
                    f"{name} was defined interactively; workers can find it only in a module or script"
                )
            here = process.current_process()
            vars(here)["_inheriting"] = (
                True  # a script that starts processes when it is imported is told so
            )
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
    """An unpickler that asks for the driver's `__main__` when something is from there."""

    def __init__(self, pickled: io.BytesIO, find_in_main: Callable[..., object]) -> None:
        super().__init__(pickled)
        self._find_in_main = find_in_main

    def find_class(self, module: str, name: str) -> object:
        """What `name` stands for in `module`."""
        return (
            self._find_in_main(name, super().find_class)
            if module in _MAIN
            else super().find_class(module, name)
        )


async def _finish(result: Awaitable[object]) -> object:
    return await result


# --- failing ----------------------------------------------------------------------------------------------------------


class _Bare:
    """An exception that is rebuilt without its `__init__`, which often wants other arguments than `args` has."""

    def __init__(self, error: BaseException) -> None:
        self._parts = (type(error), error.args, vars(error))

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, self._parts


def rebuild(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    """An exception of that kind, as it was."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


def _failure(error: BaseException, item: str) -> bytes:
    """The reply that `error` travels in: as itself if it arrives with its type and message, else as a text."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    trace = "".join(traceback.format_exception(error.with_traceback(frames)))
    # KeyboardInterrupt and its like would stop the driver's loop instead of failing one item.
    if isinstance(error, (Exception, asyncio.CancelledError, SystemExit)):
        for form in (error, _Bare(error)):
            with contextlib.suppress(Exception):
                reply = pickle.dumps((False, form, trace), pickle.HIGHEST_PROTOCOL)
                copy = pickle.loads(reply)[1]  # noqa: S301 - pickled in the line above
                if type(copy) is type(error) and str(copy) == str(error):
                    return reply
    told = RecordedError(_name(type(error)), _said(error), trace)
    told.add_note(
        f"{item} raised it in a worker process; the exception itself can't leave that process, its text can"
    )
    return pickle.dumps((False, told, trace), pickle.HIGHEST_PROTOCOL)


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__
        return "(its message can't be had)"


def _name(kind: type) -> str:
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
