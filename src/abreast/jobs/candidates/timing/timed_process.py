"""Confined processes that wait before calls of the target and are told when to make them."""

import asyncio
import contextlib
import json
import os
import select
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError
from abreast.jobs.candidates.behaviour.bundle import PROGRAM, write_bundle
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.behaviour.traced_run import staged_orders
from abreast.jobs.candidates.behaviour.warm_parents import ParentLost, WarmParents, WarmProcess
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.confinement import ConfinedResult, ResourceLimits, run_confined
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import remove_tree

_PROCESS_NUMBERS: Final = count()
MIN_ANSWER_SECONDS: Final = 60.0  # the shortest timeout for an answer: the machine may be slow
LIFETIME_SECONDS: Final = 600.0
_POLL_MILLISECONDS: Final = 100  # between checks whether the process has ended
_MAX_ANSWER_BYTES: Final = 64 << 20
# The parents that processes are forked from in turn: hash seed, and number. The first two also
# serve traced runs, so that others are started only for more than two generations of processes.
_PARENTS: Final = ((0, 0), (0, 1), (1, 0), (2, 0), (3, 0))
_LEAVE_SECONDS: Final = 2.0  # that a process may take to end by itself


class TimedProcessFailed(AbreastError):
    """The process did not reach the calls, or ended in one; the message says how."""

    retryable = False


class TimedProcessTimedOut(TimedProcessFailed):
    """A call took longer than its timeout."""


@dataclass(frozen=True, slots=True)
class Made:
    """The calls of one order: seconds of each chunk by the parent's clock, and their results.

    `all` is the time from the order to the last answer.

    Attributes:
        record: The trace of the calls, if its digest was not known.
    """

    chunks: tuple[float, ...]
    all: float
    digest: str
    record: bytes | None


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """Where a timed process runs, and which calls it waits before.

    Without `wanted` calls, it only reports which calls there are.

    Attributes:
        seconds: The lifetime of the process.
        digests: Whether it reports digests of the arguments; a pass that only times calls needs
            none.
        parent: The process that it is forked from, which has the same hash seed; None for a new
            process.
    """

    slot: Slot
    target: Target
    tests: Tests
    wanted: tuple[str, ...] = ()
    hash_seed: int = 0
    seconds: float = LIFETIME_SECONDS
    digests: bool = True
    parent: WarmProcess | None = None


class TimedProcess:
    """One timed process. `live` runs it, in a task beside the caller's."""

    def __init__(self, place: ProcessPlace) -> None:
        self._place = place
        self._directory = place.slot.scratch / f"time-{place.slot.index}-{next(_PROCESS_NUMBERS)}"
        self._files: dict[str, int] = {}
        self._buffer = b""
        self.ran: ConfinedResult | None = None
        self.error: BaseException | None = None
        self._over = False

    def prepare(self, _: StopRequest) -> None:
        """Create its directory, bundle and pipes."""
        place, slot = self._place, self._place.slot
        self._directory.mkdir(mode=0o700)
        orders = {
            "top": str(slot.repository.top),
            "slot": str(slot.path),
            "qualname": place.target.qualname,
            "file": str(slot.mirror(place.target.file).relative_to(slot.path)),
            "names": place.tests.names,
            "workloads": place.tests.workloads,
            "wanted": place.wanted,
            "digests": place.digests,
            "removed": staged_orders(slot)["removed"],
        }
        (self._directory / "orders.json").write_text(json.dumps(orders), "ascii")
        for name in ("up", "down", *(f"down-{number}" for number in range(len(place.wanted)))):
            os.mkfifo(self._directory / name, 0o600)
            # Opened for reading and writing, so that opening never blocks and no end is read.
            self._files[name] = os.open(
                self._directory / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            )

    async def live(self) -> None:
        """Run until it is asked to leave or ends; the result is in `ran` or `error`."""
        place = self._place
        limits = ResourceLimits(
            seconds=place.seconds, cpu=max(1, int(place.seconds)), processes=128
        )
        try:
            self.ran = await self._run(limits)
        except Exception as error:  # noqa: BLE001 - raised where an answer is awaited
            self.error = error
        finally:
            self._over = True

    async def _run(self, limits: ResourceLimits) -> ConfinedResult:
        place, directory = self._place, self._directory
        seed = place.hash_seed if place.parent is None else place.parent.hash_seed
        environment = {"PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
        program = PROGRAM.replace(".child.main", ".child.timed")
        command = [place.tests.python, "-c", program, str(directory)]
        if place.parent is not None:
            with contextlib.suppress(ParentLost):
                return await run_confined(
                    command,
                    place.slot,
                    limits=limits,
                    extra_env=environment,
                    writable=[directory],
                    start=place.parent.starter("timed", directory),
                )
        await run_in_thread(lambda _: write_bundle(directory))
        return await run_confined(
            command, place.slot, limits=limits, extra_env=environment, writable=[directory]
        )

    def leave(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(OSError, KeyError):
            os.write(self._files["down"], b"x")

    async def close(self) -> None:
        """Close its pipes and remove its directory."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        with contextlib.suppress(OSError):  # closing the pool tries again, and reports why not
            await run_in_thread(lambda _: remove_tree(self._directory))

    async def wait_until_ready(self) -> dict[str, Any]:
        """Wait until its tests have ended; return the calls it waits before, or all calls."""
        return await run_in_thread(lambda stop: self._read_answer(stop, self._place.seconds))

    async def make(
        self,
        number: int,
        chunks: Sequence[int],
        seconds: float,
        known: Sequence[str],
        cpu: int | None = None,
    ) -> Made:
        """Have a call made as many times in a row as each chunk says.

        The process begins on `cpu`; the system may move it from there. Raises
        `TimedProcessTimedOut` if a chunk takes longer than `seconds`.
        """

        def work(stop: StopRequest) -> Made:
            began = SYSTEM_CLOCK.now()
            self._send(number, json.dumps({"do": "time", "chunks": list(chunks), "cpu": cpu}))
            self._read_answer(stop, seconds)
            took = tuple(self._time_chunk(stop, number, seconds) for _ in chunks)
            digest = str(self._read_answer(stop, seconds).get("digest"))
            ended = SYSTEM_CLOCK.now()
            wanted = digest not in known
            self._send(number, "show" if wanted else "end")
            record = self._read_answer(stop, seconds).get("record", "") if wanted else None
            self._read_answer(stop, seconds)
            return Made(took, ended - began, digest, str(record).encode() if wanted else None)

        return await run_in_thread(work)

    async def ask(self, number: int, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Have a call made for another purpose than its time."""

        def work(stop: StopRequest) -> dict[str, Any]:
            self._send(number, json.dumps({"chunks": [1], **order}))
            found = self._read_answer(stop, seconds)
            self._read_answer(stop, seconds)
            return found

        return await run_in_thread(work)

    def _time_chunk(self, stop: StopRequest, number: int, seconds: float) -> float:
        now, go = SYSTEM_CLOCK.now, self._files[f"down-{number}"]
        waiting = select.poll()
        waiting.register(self._files["up"], select.POLLIN)
        began = now()
        os.write(go, b"go\n")
        while not waiting.poll(_POLL_MILLISECONDS):
            self._check_alive(stop)
            if now() - began > seconds:
                raise TimedProcessTimedOut(f"a call did not end within {seconds:.1f} s")
        ended = now()
        if not self._read_line(stop, seconds).startswith(b"done"):
            raise TimedProcessFailed("it answered before it was done")
        return ended - began

    def _send(self, number: int, order: str) -> None:
        os.write(self._files[f"down-{number}"], order.encode("ascii") + b"\n")

    def _read_answer(self, stop: StopRequest, seconds: float) -> dict[str, Any]:
        """Read the next line as a JSON object. Raises `TimedProcessFailed` for anything else."""
        try:
            found = json.loads(self._read_line(stop, seconds))
        except ValueError:
            raise TimedProcessFailed("it answered with something that can't be read") from None
        if not isinstance(found, dict):
            raise TimedProcessFailed("it answered with something that is no answer")
        if broken := found.get("broken"):
            raise TimedProcessFailed(f"a call could not be made: {broken}")
        return found

    def _read_line(self, stop: StopRequest, seconds: float) -> bytes:
        up = self._files["up"]
        until = SYSTEM_CLOCK.now() + seconds
        while b"\n" not in self._buffer:
            if select.select([up], [], [], _POLL_MILLISECONDS / 1000)[0]:
                self._buffer += os.read(up, 1 << 16)
                if len(self._buffer) > _MAX_ANSWER_BYTES:
                    raise TimedProcessFailed("it answered with more than can be read")
            else:
                self._check_alive(stop)
                if SYSTEM_CLOCK.now() > until:
                    raise TimedProcessTimedOut(f"there was no answer within {seconds:.1f} s")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _check_alive(self, stop: StopRequest) -> None:
        stop.check()
        if self._over:
            stderr = self.ran.stderr.decode("utf-8", "replace").strip() if self.ran else ""
            how, last = self.ran.why if self.ran else self.error, stderr.splitlines()[-1:]
            raise TimedProcessFailed(
                f"the process ended before it was told to ({how}) {' '.join(last)}".strip()
            )


class TimedProcesses:
    """The timed processes that are alive, as tasks of one task group."""

    def __init__(self, group: asyncio.TaskGroup, parents: WarmParents | None = None) -> None:
        """With `parents`, they are forked from those."""
        self._group, self._parents = group, parents
        self._alive: list[TimedProcess] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._started = 0

    async def start(
        self, places: Sequence[ProcessPlace]
    ) -> list[tuple[TimedProcess, dict[str, Any]]]:
        """Start some at once, wait until each is ready, and return them with their answers.

        All are forked from the same parent, so that none has a better layout of memory for its
        whole life than another. The next ones have the next parent.
        """
        parent = await self._next_parent()
        begun = [TimedProcess(replace(place, parent=parent)) for place in places]
        self._alive += begun
        for process in begun:
            await run_in_thread(process.prepare)
            self._tasks.append(self._group.create_task(process.live()))
        found = [(process, await process.wait_until_ready()) for process in begun]
        for place, (_, ready) in zip(places, found, strict=True):
            if missing := [name for name in place.wanted if name not in ready.get("held", ())]:
                failed = ready.get("failed", "")
                raise TimedProcessFailed(
                    f"the tests did not make the call {missing[0]} {failed}".strip()
                )
        return found

    async def _next_parent(self) -> WarmProcess | None:
        seed, number = _PARENTS[self._started % len(_PARENTS)]
        self._started += 1
        return None if self._parents is None else await self._parents.get(seed, number)

    async def end(self) -> None:
        """End them all."""
        for process in self._alive:
            process.leave()
        if self._tasks:
            _, slow = await asyncio.wait(self._tasks, timeout=_LEAVE_SECONDS)
            for task in slow:
                task.cancel()
            await asyncio.wait(self._tasks)
        for process in self._alive:
            await process.close()
            if self._parents is not None and process.ran is not None:
                self._parents.count(process.ran.wall_seconds, process.ran.cpu_seconds)
        self._alive.clear()
        self._tasks.clear()


@contextlib.asynccontextmanager
async def open_timed_processes(
    parents: WarmParents | None = None,
) -> AsyncIterator[TimedProcesses]:
    """Within this context there are timed processes; all of them are ended with it.

    With `parents`, they are forked from those, else they are new processes.

    An exception leaves it as it is, not in an exception group.
    """
    caught: Exception | None = None
    async with asyncio.TaskGroup() as group:
        processes = TimedProcesses(group, parents)
        try:
            yield processes
        except Exception as error:  # noqa: BLE001 - raised below
            caught = error
        finally:
            await processes.end()
    if caught is not None:
        raise caught
