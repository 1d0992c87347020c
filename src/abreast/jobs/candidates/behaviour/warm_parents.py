"""Warmed parents: processes from which traced and timed runs are forked instead of being started.

    async with open_warm_parents(slot, tests) as parents:
        process = await parents.get(0)
        await run_confined(argv, slot, start=process.starter("main", directory))

`abreast.jobs.candidates.child.warm` is their program. The supervisor starts them like any command,
so they end with the driver, and all that they have forked ends with them. Where a parent would not
do, `get` returns None, and `unfit` says why: then every run is a new process.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError
from abreast.executors.commands import CommandRunner, Finished
from abreast.jobs.candidates.behaviour.bundle import PROGRAM, write_bundle
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.confinement import PRIVATE, StartSandbox, sandbox_environment
from abreast.worktrees.errors import Interrupted
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import remove_tree

Program: TypeAlias = Literal["main", "timed"]

_NUMBERS: Final = count()
_RUN_NUMBERS: Final = count(1)
_READY_SECONDS: Final = 60.0  # that a parent may take to get warm
_POLL_MILLISECONDS: Final = 100  # between checks whether the parent has ended
_BYTECODE: Final = f"{PRIVATE}bytecode"  # what the parents compile; hidden from all runs
# Between SIGTERM and SIGKILL for a run that is cancelled: without a namespace, only its sandbox can
# end a daemon.
_GRACE_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 0.3  # that the parents have to end by themselves
_CHUNK: Final = 1 << 16


class ParentKind(NamedTuple):
    """Which parent: its hash seed, its number among those of that seed, and what it is for.

    One that is not for runs with tests does not import pytest and its plugins.
    """

    hash_seed: int
    number: int = 0
    tests: bool = True


# Every run needs these besides the first one, so they get warm while that one is used. They have
# what it has compiled.
_SECOND_PARENTS: Final = (ParentKind(0, 1), ParentKind(1, tests=False))


class ParentLost(AbreastError):
    """A parent has ended before it started the run."""

    retryable = False


class WarmProcess:
    """One warmed parent. `live` runs it, in a task beside the caller's."""

    def __init__(self, slot: Slot, tests: Tests, kind: ParentKind) -> None:
        self._slot, self._tests, self._kind = slot, tests, kind
        self._directory = slot.scratch / f"{PRIVATE}warm-{next(_NUMBERS)}"
        self._control = self._answers = -1
        self._lock = threading.Lock()
        self._over = False
        self._answer = b""

    @property
    def hash_seed(self) -> int:
        """The hash seed of all that is forked from it."""
        return self._kind.hash_seed

    def prepare(self, modules: Sequence[str]) -> None:
        """Create its directory, which is hidden from all runs, and its FIFOs."""
        slot, place = self._slot, self._directory
        place.mkdir(mode=0o700)
        for name in ("home", "tmp"):
            (place / name).mkdir(mode=0o700)
        write_bundle(place)
        orders = {
            "top": str(slot.repository.top),
            "slot": str(slot.path),
            "root": str(slot.root),
            "names": self._tests.names if self._kind.tests else (),
            "tests": self._kind.tests,
            "modules": modules,
            "bytecode": str(slot.scratch / _BYTECODE),
        }
        (place / "warm.json").write_text(json.dumps(orders), "ascii")
        for name in ("control", "answers"):
            os.mkfifo(place / name, 0o600)
        # Opened for reading and writing, so that opening never blocks. It is closed with the
        # driver, and then the parent ends.
        flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        self._control = os.open(place / "control", flags)
        self._answers = os.open(place / "answers", flags)

    async def live(self, commands: CommandRunner) -> None:
        """Run until it is closed or ends."""
        environment = {
            "PATH": os.defpath,
            "LANG": "C.UTF-8",
            **sandbox_environment(),
            "HOME": str(self._directory / "home"),
            "TMPDIR": str(self._directory / "tmp"),
            "PYTHONHASHSEED": str(self.hash_seed),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        program = PROGRAM.replace(".child.main import main", ".child.warm import serve as main")
        argv = [self._tests.python, "-c", program, str(self._directory)]
        try:
            # What it prints is of no use: a new process prints the same.
            await commands.run(argv, cwd=str(self._directory), env=environment, keep=0)
        except (AbreastError, OSError):
            pass  # there will be no answer, and runs start new processes
        finally:
            self._over = True

    async def wait_until_ready(self) -> str:
        """Wait until it is warm; return why it is of no use, or an empty text."""
        return await run_in_thread(self._read_answer)

    async def order_import(self, modules: Sequence[str]) -> None:
        """Have it import these; `wait_until_ready` waits for that."""
        await run_in_thread(lambda _: self._send({"import": list(modules)}))

    def starter(self, program: Program, directory: Path) -> StartSandbox:
        """Return a function for `run_confined` that forks the program with its directory."""

        async def start(request: dict[str, Any], scratch: Path, keep: int) -> Finished:
            number = next(_RUN_NUMBERS)
            order = {
                "number": number,
                "program": program,
                "directory": str(directory),
                "scratch": str(scratch),
                "layout": int.from_bytes(os.urandom(6)),
                "request": request,
            }
            run = _ForkedRun(scratch, keep)
            return await run_in_thread(lambda stop: self._run(order, run, stop))

        return start

    async def close(self) -> None:
        """Close its FIFOs, which ends it, and remove its directory."""
        for file in (self._control, self._answers):
            if file >= 0:
                os.close(file)
        self._control = self._answers = -1
        with contextlib.suppress(OSError):  # closing the pool tries again, and reports why not
            await run_in_thread(lambda _: remove_tree(self._directory))

    def leave(self) -> None:
        """Make it end: nothing else holds the FIFO open."""
        file, self._control = self._control, -1
        if file >= 0:
            os.close(file)

    def _send(self, order: dict[str, Any]) -> None:
        data = json.dumps(order).encode("ascii") + b"\n"
        with self._lock:  # a long line is not written at once
            while data:
                try:
                    data = data[os.write(self._control, data) :]
                except BlockingIOError:
                    select.select([], [self._control], [], _POLL_MILLISECONDS / 1000)
                    self._check_alive()

    def _check_alive(self) -> None:
        if self._over:
            raise ParentLost("the process that runs are forked from has ended")

    def _read_answer(self, stop: StopRequest) -> str:
        until = SYSTEM_CLOCK.now() + _READY_SECONDS
        while b"\n" not in self._answer:
            if select.select([self._answers], [], [], _POLL_MILLISECONDS / 1000)[0]:
                self._answer += os.read(self._answers, _CHUNK)
                continue
            stop.check()
            if self._over or SYSTEM_CLOCK.now() > until:
                return "the project's Python could not be started beforehand"
        line, _, self._answer = self._answer.partition(b"\n")
        return str(json.loads(line)["unfit"])

    def _run(self, order: dict[str, Any], run: "_ForkedRun", stop: StopRequest) -> Finished:
        """Have it fork a run, and read its output until it has ended."""
        try:
            self._check_alive()
            self._send(order)
            while not run.read(_POLL_MILLISECONDS):
                if not run.begun:
                    self._check_alive()
                stop.check()
        except Interrupted:
            self._stop(order["number"], run)
            raise
        finally:
            run.close()
        return run.finished

    def _stop(self, number: int, run: "_ForkedRun") -> None:
        for word, seconds in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, _READY_SECONDS)):
            with contextlib.suppress(ParentLost):
                self._send({"number": number, "signal": int(word)})
            until = SYSTEM_CLOCK.now() + seconds
            while SYSTEM_CLOCK.now() < until and not self._over:
                if run.read(_POLL_MILLISECONDS):
                    return


class _ForkedRun:
    """The FIFOs of a forked run: stdout, stderr, and one that its sandbox holds until its end."""

    def __init__(self, scratch: Path, keep: int) -> None:
        self.begun = False
        self._keep = keep
        self._files: dict[str, int] = {}
        for name in ("out", "err", "end"):
            os.mkfifo(scratch / name, 0o600)
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            self._files[name] = os.open(scratch / name, flags)
        self._kept = {"out": bytearray(), "err": bytearray()}
        self._sizes = {"out": 0, "err": 0}

    @property
    def finished(self) -> Finished:
        """The output; the report of the sandbox says how the run ended."""
        out, err = (bytes(self._kept[name]) for name in ("out", "err"))
        return Finished(0, out, err, self._sizes["out"], self._sizes["err"])

    def read(self, milliseconds: int) -> bool:
        """Wait for output, or for the end; return whether it has ended."""
        waiting = select.poll()
        for name, file in self._files.items():
            if name == "end" or self.begun:
                waiting.register(file, select.POLLIN)
        ready = {file for file, _ in waiting.poll(milliseconds)}
        ended = self._files["end"] in ready and self._read_end()
        for name in self._kept:
            if ended or self._files[name] in ready:
                self._read_output(name, whole=ended)
        return ended

    def _read_end(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            if os.read(self._files["end"], _CHUNK):
                self.begun = True
            else:
                return self.begun
        return False

    def _read_output(self, name: str, *, whole: bool) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._files[name], _CHUNK):
                self._sizes[name] += len(data)
                self._kept[name] += data[: max(0, self._keep - len(self._kept[name]))]
                if not whole:
                    return

    def close(self) -> None:
        """Close the FIFOs."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()


class WarmParents:
    """The warmed parents of one project; each is started when it is needed."""

    def __init__(self, group: asyncio.TaskGroup, slot: Slot, tests: Tests) -> None:
        """`slot` holds the original; its settings decide which plugins pytest loads."""
        self._group, self._slot, self._tests = group, slot, tests
        self._processes: dict[ParentKind, WarmProcess] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()
        self._busy: set[ParentKind] = set()  # getting warm: their answer was not read yet
        self._modules: tuple[str, ...] = ()
        # Called with the wall time and CPU time of each timed process that has ended.
        self.count: Callable[[float, float], None] = lambda _seconds, _cpu: None
        # Why runs are new processes; empty as long as they are forked.
        self.unfit = "" if sys.platform == "linux" else "only on Linux"
        if slot.nodes is not None:
            self.unfit = "they run on other machines"

    async def get(
        self, hash_seed: int, number: int = 0, *, tests: bool = True
    ) -> WarmProcess | None:
        """Return a parent with that hash seed, warm; None if runs can't be forked here.

        Several of one hash seed have different layouts of memory. `tests` is whether it is for
        runs with tests, or only for those with generated inputs.
        """
        kind = ParentKind(hash_seed, number, tests)
        async with self._starting:
            if self.unfit or (commands := self._slot.commands) is None:
                return None
            first = not self._processes
            if kind not in self._processes:
                await self._start(kind, commands)
            if await self._wait_for(kind):
                return None
            for other in _SECOND_PARENTS if first else ():
                if other not in self._processes:
                    await self._start(other, commands)
            return self._processes[kind]

    async def _start(self, kind: ParentKind, commands: CommandRunner) -> None:
        process = self._processes[kind] = WarmProcess(self._slot, self._tests, kind)
        await run_in_thread(lambda _: process.prepare(self._modules))
        self._tasks.append(self._group.create_task(process.live(commands)))
        self._busy.add(kind)

    async def _wait_for(self, kind: ParentKind) -> str:
        """Wait until it is warm; return why none of them is of any use, or an empty text."""
        if kind in self._busy:
            self._busy.discard(kind)
            self.unfit = await self._processes[kind].wait_until_ready() or self.unfit
        return self.unfit

    async def import_modules(self, modules: Sequence[str]) -> None:
        """Have all of them import these too: what the original's run imported from elsewhere."""
        async with self._starting:
            self._modules = tuple(modules)
            for kind in self._processes:
                await self._wait_for(kind)
            for kind, process in self._processes.items() if not self.unfit else ():
                await process.order_import(modules)
                self._busy.add(kind)
            for kind in self._processes:
                await self._wait_for(kind)

    async def close(self) -> None:
        """End them all."""
        for process in self._processes.values():
            process.leave()
        if self._tasks:
            _, slow = await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
            for task in slow:
                task.cancel()
            await asyncio.wait(self._tasks)
        for process in self._processes.values():
            await process.close()


@contextlib.asynccontextmanager
async def open_warm_parents(slot: Slot, tests: Tests) -> AsyncIterator[WarmParents]:
    """Within this context there may be warmed parents; all of them are ended with it.

    An exception leaves it as it is, not in an exception group.
    """
    caught: Exception | None = None
    async with asyncio.TaskGroup() as group:
        parents = WarmParents(group, slot, tests)
        try:
            yield parents
        except Exception as error:  # noqa: BLE001 - raised below
            caught = error
        finally:
            await parents.close()
    if caught is not None:
        raise caught
