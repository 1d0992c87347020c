"""A confined process that stands before calls of the target, seen from outside: it is told to go, and timed here."""

from __future__ import annotations

import contextlib
import json
import os
import select
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.core.errors import AbreastError
from abreast.jobs.candidates.behaviour.bundle import PROGRAM, write_bundle
from abreast.jobs.candidates.behaviour.trace import Tests
from abreast.jobs.candidates.source.target import Target
from abreast.worktrees.background import StopRequest, aside
from abreast.worktrees.confinement import ConfinedResult, ResourceLimits, run_confined
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import remove_tree

_NUMBERS: Final = count()
PATIENCE: Final = 60.0  # s for an answer, at least: a slow machine is no fault of a candidate
SECONDS_ALIVE: Final = 600.0
_TICK: Final = 100  # ms; how often the end of the process is looked for
_LONGEST: Final = 64 << 20  # bytes of an answer


class TimedProcessFailed(AbreastError):
    """The process did not come to the calls, or ended in one; the message says how."""

    retryable = False


class TimedProcessTimedOut(TimedProcessFailed):
    """A call took longer than it may."""


@dataclass(frozen=True, slots=True)
class Made:
    """Calls that were made, by chunks: seconds of each by our clock, and of all from the order to the last answer."""

    chunks: tuple[float, ...]
    all: float
    digest: str
    record: bytes | None
    """What they did, if that was not known by its digest."""


@dataclass(frozen=True, slots=True)
class ProcessPlace:
    """Where a stand is, and which calls it stops before; none: it only says which there are."""

    slot: Slot
    target: Target
    tests: Tests
    wanted: tuple[str, ...] = ()
    hash_seed: int = 0
    seconds: float = SECONDS_ALIVE
    """How long it may live."""
    digests: bool = True
    """Whether it says which calls have the same arguments.

    A pass that only times them needs not know.
    """


class TimedProcess:
    """One process of these. `live` is its life, to be run beside all else."""

    def __init__(self, place: ProcessPlace) -> None:
        """Nothing is started before `live`."""
        self._place = place
        self._directory = place.slot.scratch / f"time-{place.slot.index}-{next(_NUMBERS)}"
        self._files: dict[str, int] = {}
        self._rest = b""
        self.ran: ConfinedResult | None = None
        self.error: BaseException | None = None
        self._over = False

    async def open(self) -> None:
        """Make what it needs."""
        await aside(self._prepare)

    def _prepare(self, _: StopRequest) -> None:
        place, slot = self._place, self._place.slot
        self._directory.mkdir(mode=0o700)
        write_bundle(self._directory)
        orders = {
            "top": str(slot.repository.top),
            "slot": str(slot.path),
            "qualname": place.target.qualname,
            "file": str(slot.mirror(place.target.file).relative_to(slot.path)),
            "names": place.tests.names,
            "extra": place.tests.extra,
            "wanted": place.wanted,
            "digests": place.digests,
        }
        (self._directory / "orders.json").write_text(json.dumps(orders), "ascii")
        for name in ("up", "down", *(f"down-{number}" for number in range(len(place.wanted)))):
            os.mkfifo(self._directory / name, 0o600)
            # Opened both ways: it never waits for the other side, and never sees its end.
            self._files[name] = os.open(
                self._directory / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            )

    async def live(self) -> None:
        """Run until it is told to leave, or ends; how it ended is kept."""
        place = self._place
        limits = ResourceLimits(
            seconds=place.seconds, cpu=max(1, int(place.seconds)), processes=128
        )
        environment = {"PYTHONHASHSEED": str(place.hash_seed), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [
            place.tests.python,
            "-c",
            PROGRAM.replace(".child.main", ".child.timed"),
            str(self._directory),
        ]
        try:
            self.ran = await run_confined(
                command,
                place.slot,
                limits=limits,
                extra_env=environment,
                writable=[self._directory],
            )
        except Exception as error:  # noqa: BLE001 - said to who waits for an answer
            self.error = error
        finally:
            self._over = True

    def leave(self) -> None:
        """Tell it to end."""
        with contextlib.suppress(OSError, KeyError):
            os.write(self._files["down"], b"x")

    async def close(self) -> None:
        """Remove what it needed."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        with contextlib.suppress(OSError):  # closing the pool tries again, and says why not
            await aside(lambda _: remove_tree(self._directory))

    async def told(self) -> dict[str, Any]:
        """Wait until its tests are over: which calls it stands before, or which there are."""
        return await aside(lambda stop: self._answer(stop, self._place.seconds))

    async def make(
        self,
        number: int,
        chunks: Sequence[int],
        seconds: float,
        known: Sequence[str],
        cpu: int | None = None,
    ) -> Made:
        """Have a call made so many times in a row, for each chunk.

        StandTimedOut if one takes longer than `seconds`.

        It begins on that CPU, and may go elsewhere from there.
        """
        order = {"do": "time", "chunks": list(chunks), "cpu": cpu}
        return await aside(lambda stop: self._make(stop, number, order, seconds, known))

    async def ask(self, number: int, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Have a call made for another purpose than its time."""

        def work(stop: StopRequest) -> dict[str, Any]:
            self._tell(number, json.dumps({"chunks": [1], **order}))
            found = self._answer(stop, seconds)
            self._answer(stop, seconds)
            return found

        return await aside(work)

    def _make(
        self,
        stop: StopRequest,
        number: int,
        order: dict[str, Any],
        seconds: float,
        known: Sequence[str],
    ) -> Made:
        began = SYSTEM_CLOCK.now()
        self._tell(number, json.dumps(order))
        self._answer(stop, seconds)
        took = tuple(self._chunk(stop, number, seconds) for _ in order["chunks"])
        digest = str(self._answer(stop, seconds).get("digest"))
        ended = SYSTEM_CLOCK.now()
        wanted = digest not in known
        self._tell(number, "show" if wanted else "end")
        record = str(self._answer(stop, seconds).get("record", "")).encode() if wanted else None
        self._answer(stop, seconds)
        return Made(took, ended - began, digest, record)

    def _chunk(self, stop: StopRequest, number: int, seconds: float) -> float:
        """From our word to theirs."""
        now, go = SYSTEM_CLOCK.now, self._files[f"down-{number}"]
        waiting = select.poll()
        waiting.register(self._files["up"], select.POLLIN)
        began = now()
        os.write(go, b"go\n")
        while not waiting.poll(_TICK):
            self._look(stop)
            if now() - began > seconds:
                raise TimedProcessTimedOut(f"a call did not end within {seconds:.1f} s")
        ended = now()
        if not self._line(stop, seconds).startswith(b"done"):
            raise TimedProcessFailed("it answered before it was done")
        return ended - began

    def _tell(self, number: int, order: str) -> None:
        os.write(self._files[f"down-{number}"], order.encode("ascii") + b"\n")

    def _answer(self, stop: StopRequest, seconds: float) -> dict[str, Any]:
        """The next line, as what it must be; whatever else it is, is its fault."""
        try:
            found = json.loads(self._line(stop, seconds))
        except ValueError:
            raise TimedProcessFailed("it answered with something that can't be read") from None
        if not isinstance(found, dict):
            raise TimedProcessFailed("it answered with something that is no answer")
        if broken := found.get("broken"):
            raise TimedProcessFailed(f"a call could not be made: {broken}")
        return found

    def _line(self, stop: StopRequest, seconds: float) -> bytes:
        up = self._files["up"]
        until = SYSTEM_CLOCK.now() + seconds
        while b"\n" not in self._rest:
            if not select.select([up], [], [], _TICK / 1000)[0]:
                self._look(stop)
                if SYSTEM_CLOCK.now() > until:
                    raise TimedProcessTimedOut(f"there was no answer within {seconds:.1f} s")
                continue
            self._rest += os.read(up, 1 << 16)
            if len(self._rest) > _LONGEST:
                raise TimedProcessFailed("it answered with more than can be read")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _look(self, stop: StopRequest) -> None:
        stop.check()
        if self._over:
            said = (
                self.ran.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
                if self.ran
                else []
            )
            how = self.ran.why if self.ran else self.error
            raise TimedProcessFailed(
                f"the process ended before it was told to ({how}) {' '.join(said)}".strip()
            )
