"""The process executor, for work that must be killable, may crash, or would hold the GIL."""

import asyncio
import contextvars
import multiprocessing
import os
import pickle
import reprlib
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing import process, util
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from abreast.core.errors import WorkerDied
from abreast.executors.driver_requests import DriverRequests
from abreast.executors.port import BoundCall, Capabilities, PortableContextValue
from abreast.executors.replies import Dumps, dumps_by_reference
from abreast.executors.worker import Setup
from abreast.executors.worker_process import WorkerProcess

T = TypeVar("T")
R = TypeVar("R")


class ProcessExecutor:
    """Runs items in worker interpreters, started on demand and reused, one item at a time each.

    The function must be importable (module-level, in a module or script), and values, results and
    exceptions must pickle. An item that is cancelled or times out has its worker killed, with all
    that it started in its process group; one whose worker dies fails with `WorkerDied`. Neither
    touches any other item.

        async for outcome in run.map(evaluate, programs, width=8, timeout=30, executor="process"):
            ...
    """

    carries = Capabilities(closures=False, contextvars=False, exceptions=True)

    def bind(
        self,
        fn: Callable[[T], Awaitable[R] | R],
        width: int,  # noqa: ARG002 - part of the port; workers are started on demand
    ) -> BoundCall[T, R]:
        """Pickle the function by reference; TypeError if it has none. No process starts yet."""
        if getattr(process.current_process(), "_inheriting", False):
            raise RuntimeError(
                "a worker process is importing this script, "
                "which starts workers when it is imported: "
                'put that under `if __name__ == "__main__":`'
            )
        return Workers[T, R](Setup(environment(), _main_location(), _pickle_function(fn)))


class Workers(Generic[T, R]):
    """The processes of one map."""

    def __init__(self, setup: Setup) -> None:
        # Seconds to wait for the end of a killed process, which normally takes milliseconds.
        self.kill_timeout = 2.0
        self._loop = asyncio.get_running_loop()
        self._setup = pickle.dumps(setup, pickle.HIGHEST_PROTOCOL)
        # multiprocessing starts its own children with these flags.
        self._flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        self._children: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []

    async def async_call(self, value: T) -> R:
        """Call the function in a worker. When cancelled, it returns once the worker is dead."""
        asked: DriverRequests | None = None

        context = contextvars.copy_context()

        def ask_driver(child: WorkerProcess, number: int, call: bytes) -> None:
            nonlocal asked
            if asked is None:
                asked = context.run(DriverRequests, child.answer)
            asked.handle(number, call)

        try:
            answer = await self.ask(pack(value), reprlib.repr(value), ask_driver)
        finally:
            if asked is not None:
                await asked.close()
        return cast("R", unpack(answer, value))

    async def ask(
        self,
        request: bytes,
        item: str,
        on_ask: Callable[[WorkerProcess, int, bytes], None] | None = None,
    ) -> bytearray:
        """Send a packed item to a worker; return its packed reply.

        `item` is what an error calls it. `on_ask` is called with what it asks of the driver. Raises
        `WorkerDied`.
        """
        child = self._assign(request)
        child.on_ask = None if on_ask is None else partial(on_ask, child)
        reply = child.reply
        try:
            answer = await reply
        except BaseException as error:
            if reply.done() and not reply.cancelled():  # it came just before the cancellation
                self._idle.append(child)
            else:
                child.kill()
                if isinstance(error, asyncio.CancelledError):
                    # What the item holds, such as a worktree, is returned only when the worker
                    # can't write to it any more.
                    await asyncio.wait([child.ended], timeout=self.kill_timeout)
            raise
        if answer is None:
            raise WorkerDied(f"item {item}: in the middle of it its worker process {child.how}")
        self._idle.append(child)
        return answer

    async def close(self, grace: float) -> list[str]:
        """End the workers: idle ones by themselves within `grace` seconds, all others at once."""
        for child in self._children:
            if child in self._idle:
                child.close_input()
            else:
                child.kill()
        try:
            await self._wait(grace)
        finally:
            for child in self._children:
                child.kill()
            await self._wait(self.kill_timeout)
        return [f"worker process {child.pid}" for child in self._children]

    async def _wait(self, seconds: float) -> None:
        if self._children:
            await asyncio.wait([child.ended for child in self._children], timeout=seconds)

    def _assign(self, request: bytes) -> WorkerProcess:
        while self._idle:
            child = self._idle.pop()
            if child.ask(request):
                return child
        child = WorkerProcess(self._loop, self._flags, self._setup)
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._children.discard(child))
        child.ask(request)
        return child


def _pickle_function(fn: Callable[..., object]) -> bytes:
    """Pickle the function as the name by which a worker can find it."""
    named: Any = fn
    while hasattr(named, "func"):  # a partial, or a step
        named = named.func
    try:
        pickled = pickle.dumps(fn, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(
            "the process executor carries module-level functions only, no lambda or closure; "
            f"{named!r} can't be found by its name ({error})"
        ) from error
    if getattr(named, "__module__", None) == "__main__" and not _main_location():
        raise TypeError(
            f"the process executor carries functions of a module or script; {named!r} was typed in"
        )
    return pickled


def pack(value: object, dumps: Dumps = dumps_by_reference) -> bytes:
    """Pickle an item and the parts of its context that travel; TypeError if that can't be done."""
    values = contextvars.copy_context().values()
    luggage = [found.luggage() for found in values if isinstance(found, PortableContextValue)]
    try:
        return dumps((value, luggage))
    except Exception as error:
        raise TypeError(
            f"item {reprlib.repr(value)}, a {type(value).__qualname__}, or what it holds "
            f"can't be taken to another process: {error}"
        ) from error


def unpack(answer: bytes | bytearray, value: object) -> object:
    """Return what the function returned.

    Raises what it raised, with the worker's traceback as a note.
    """
    try:
        succeeded, result, trace = pickle.loads(answer)  # noqa: S301 - from a process of ours
    except Exception as error:
        raise TypeError(
            f"the value of item {reprlib.repr(value)} can't be read here: {error}"
        ) from error
    if succeeded:
        return result
    result.add_note(f"In the worker process:\n{trace}")
    raise result


# multiprocessing has a function that collects all this, but it also fixes the start method of this
# process permanently.


def environment() -> dict[str, Any]:
    """What makes a worker resemble this process: module path, arguments, key for managers."""
    start_method = multiprocessing.get_start_method(allow_none=True)
    return {
        "name": "abreast-worker",
        "authkey": bytes(process.current_process().authkey),
        "sys_path": [entry or str(Path.cwd()) for entry in sys.path],
        "sys_argv": sys.argv,
        **({"start_method": start_method} if start_method else {}),
    }


def _main_location() -> dict[str, str]:
    """Where workers find the names of `__main__`; empty if they were typed interactively."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    if path is None:
        return {}
    path = os.path.normpath(Path(process.ORIGINAL_DIR or "", path))  # type: ignore[attr-defined]
    return {"init_main_from_path": path} if Path(path).is_file() else {}
