"""Work in processes beside this one: for what must be killable, may crash, or would hold the interpreter's lock."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import os
import pickle
import reprlib
import sys
from collections.abc import Awaitable, Callable
from multiprocessing import process, util
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from abreast.core.errors import WorkerDied
from abreast.executors.port import BoundCall, Carries
from abreast.executors.worker import Setup
from abreast.executors.worker_process import WorkerProcess

T = TypeVar("T")
R = TypeVar("R")

_DYING = (
    2.0  # seconds that the kernel gets to end what was killed; it normally takes a few thousandths
)


class ProcessExecutor:
    """Workers are interpreters of their own, started when items come and used again, one item at a time.

    The function must be importable (module-level, in a module or script), and values, results and
    exceptions must pickle. An item that is cancelled or times out has its worker killed, with all
    that it started in its process group; one whose worker dies fails with `WorkerDied`. Neither
    touches any other item.

        async for outcome in run.map(evaluate, programs, width=8, timeout=30, executor="process"):
            ...
    """

    carries = Carries(closures=False, contextvars=False, exceptions=True)

    def bind(self, fn: Callable[[T], Awaitable[R] | R], width: int) -> BoundCall[T, R]:  # noqa: ARG002 - they come as needed
        """Pickle the function, by reference; TypeError if it has none. No process starts yet."""
        if getattr(process.current_process(), "_inheriting", False):
            raise RuntimeError(
                "a worker process is importing this script, which starts workers when it is imported: "
                'put that under `if __name__ == "__main__":`'
            )
        return Workers[T, R](Setup(_surroundings(), _main(), _refer_to(fn)))


class Workers(Generic[T, R]):
    """The processes of one map."""

    def __init__(self, setup: Setup) -> None:
        """None yet; they start when calls come."""
        self._loop = asyncio.get_running_loop()
        self._setup = pickle.dumps(setup, pickle.HIGHEST_PROTOCOL)
        self._flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing does
        self._children: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []

    async def async_call(self, value: T) -> R:
        """Call the function in a worker. Cancelled, it returns when the worker is dead."""
        child = self._assign(_pack(value))
        reply = child.reply
        try:
            answer = await reply
        except BaseException as error:
            if reply.done() and not reply.cancelled():  # it came just before the cancellation
                self._idle.append(child)
            else:
                child.kill()
                if isinstance(error, asyncio.CancelledError):
                    # What the item holds, such as a worktree, is given back only when nobody writes
                    # there any more.
                    await asyncio.wait([child.ended], timeout=_DYING)
            raise
        if answer is None:
            raise WorkerDied(
                f"item {reprlib.repr(value)}: in the middle of it its worker process {child.how}"
            )
        self._idle.append(child)
        return cast("R", _unpack(answer, value))

    async def close(self, grace: float) -> list[str]:
        """End the workers: those with nothing to do by themselves, within `grace` seconds.

        All others at once.
        """
        for child in self._children:
            if child in self._idle:
                child.hang_up()
            else:
                child.kill()
        try:
            await self._wait(grace)
        finally:
            for child in self._children:
                child.kill()
            await self._wait(_DYING)
        return [f"worker process {child.pid}" for child in self._children]

    async def _wait(self, seconds: float) -> None:
        if self._children:
            await asyncio.wait([child.ended for child in self._children], timeout=seconds)

    def _assign(self, request: bytes) -> WorkerProcess:
        """A worker that has just been sent the request: one that is free, or a new one."""
        while self._idle:
            child = self._idle.pop()
            if child.ask(request):
                return child
        child = WorkerProcess(self._loop, self._flags, self._setup)
        self._children.add(child)
        child.ended.add_done_callback(lambda _: self._children.discard(child))
        child.ask(request)
        return child


def _refer_to(fn: Callable[..., object]) -> bytes:
    """The function, as the name by which a worker can find it."""
    named: Any = fn
    while hasattr(named, "func"):  # a partial, or a step's
        named = named.func
    try:
        pickled = pickle.dumps(fn, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(
            f"the process executor carries module-level functions only, no lambda or closure; {named!r} can't be found "
            f"by its name ({error})"
        ) from error
    if getattr(named, "__module__", None) == "__main__" and not _main():
        raise TypeError(
            f"the process executor carries functions of a module or script; {named!r} was typed in"
        )
    return pickled


def _pack(value: object) -> bytes:
    """The item, and what of its context goes along."""
    context = contextvars.copy_context()
    luggage = [found.luggage() for found in context.values() if hasattr(type(found), "luggage")]
    try:
        return pickle.dumps((value, luggage), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(
            f"item {reprlib.repr(value)}, a {type(value).__qualname__}, or what it holds can't be taken to another "
            f"process: {error}"
        ) from error


def _unpack(answer: bytearray, value: object) -> object:
    """What the function returned.

    Or raise what it raised, with the worker's traceback as a note.
    """
    try:
        fine, result, trace = pickle.loads(answer)  # noqa: S301 - from a process of ours
    except Exception as error:
        raise TypeError(
            f"the value of item {reprlib.repr(value)} can't be read here: {error}"
        ) from error
    if fine:
        return result
    result.add_note(f"In the worker process:\n{trace}")
    raise result


# multiprocessing has a function that gathers all this, but it also fixes the start method of this
# process for good.


def _surroundings() -> dict[str, Any]:
    """What makes a worker look like this process: where modules are, arguments, the key to managers."""
    chosen = multiprocessing.get_start_method(allow_none=True)
    return {
        "name": "abreast-worker",
        "authkey": bytes(process.current_process().authkey),
        "sys_path": [entry or str(Path.cwd()) for entry in sys.path],
        "sys_argv": sys.argv,
        **({"start_method": chosen} if chosen else {}),
    }


def _main() -> dict[str, str]:
    """Where the functions and classes of `__main__` can be found; empty if they were typed in."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    if path is None:
        return {}
    path = os.path.normpath(Path(process.ORIGINAL_DIR or "", path))  # type: ignore[attr-defined]
    return {"init_main_from_path": path} if Path(path).is_file() else {}
