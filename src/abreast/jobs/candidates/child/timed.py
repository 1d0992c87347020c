"""The child's program when it is timed: stops before calls of the target, and makes them on the parent's word.

Before a call that is wanted, the process is forked, and the fork waits there with the arguments as
they came: a holder. Each order to it forks once more, and that process makes the one call. So every
call starts from the same state, in which these arguments have never been seen: what a candidate
keeps from one call to the next is of no use to it. The time is taken by the parent, from its `go`
to the `done`; what it did is told afterwards, and judged there.

It runs beside `abreast.jobs.candidates.child`, under the project's interpreter, and imports only
what is there.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import hashlib
import importlib
import io
import itertools
import json
import os
import select
import signal
import struct
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from time import perf_counter  # noqa: TID251 - to choose inputs, and to find calls that look slower; nothing is accepted by it
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, ModuleType
from typing import Any, NoReturn, cast

from abreast.jobs.candidates.child.channel import Channel
from abreast.jobs.candidates.child.install import find, install
from abreast.jobs.candidates.child.paths import Places, SlotFinder, set_path
from abreast.jobs.candidates.child.suite import Suite
from abreast.jobs.candidates.values.invocation import Invocation, encode, observe
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.stdlib_types import is_iterator
from abreast.jobs.candidates.values.take_snapshot import take_snapshot

MOST_CALLS = 2_000  # of which it is noted whether their arguments differ and can be copied
MOST_NOTED = 50_000  # of which the seconds are noted
_LAZY_SECONDS = 20.0  # that a fork may take to use up what a call gave
_BOUND = 10_000  # values of an iterator
_ASYNCHRONOUS = CO_COROUTINE | CO_ASYNC_GENERATOR


class Stops:
    """In the place of a recorder: numbers the outermost calls, and stops before those that are wanted."""

    def __init__(self, directory: str, wanted: list[str], *, digests: bool = True) -> None:
        self.test = "<collection>"
        self.calls: list[list[Any]] = []
        """When nothing is wanted: each call's name, seconds, digest of its arguments (empty if it was not taken), and
        whether these can be copied."""
        self.uncounted = 0
        """Calls beyond those."""
        self._digests = digests
        self.held: list[str] = []
        self.function: Callable[..., Any] | None = None
        self.undo: list[Callable[[], None]] = []
        """What puts the target itself back in its place."""
        self._directory = directory
        self._wanted = wanted
        self._counts: Counter[str] = Counter()
        self._inside = False

    def begin(
        self, args: tuple[object, ...], kwargs: dict[str, object], *, method: bool
    ) -> Outer | None:
        """A call begins; None if the target makes it itself."""
        del method  # `self` is the first of the arguments
        if self._inside:
            return None
        name = f"{self.test}#{self._counts[self.test]}"
        self._counts[self.test] += 1
        if name in self._wanted and name not in self.held:
            self.held.append(name)
            if not os.fork():
                # A call of the target by itself must not pass through here while it is timed.
                for one in self.undo:
                    one()
                Holder(
                    self._directory, self._wanted.index(name), name, self.function, (args, kwargs)
                ).serve()
        if self._wanted or len(self.calls) >= MOST_NOTED:
            self.uncounted += 1
            return Outer(self, None)
        digest, copyable = "", False
        if self._digests and len(self.calls) < MOST_CALLS:
            digest = hashlib.sha256(pack(take_snapshot((args, kwargs), consume=False))).hexdigest()[
                :16
            ]
            copyable = _copied((args, kwargs)) is not None
        return Outer(self, [name, 0.0, digest, copyable])

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The target's own code runs."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False


class Outer:
    """An outermost call, of which only the time is noted, if there is a row for it."""

    def __init__(self, stops: Stops, row: list[Any] | None) -> None:
        self._stops, self._row = stops, row

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """It runs."""
        with self._stops.inside():
            began = perf_counter()
            try:
                yield
            finally:
                if self._row is not None:
                    self._row[1] = perf_counter() - began
                    self._stops.calls.append(self._row)

    def raised(self, error: BaseException) -> None:
        """It is no matter how it ends."""

    def hand_on(self, result: object) -> object:
        """What the caller gets. Of a generator, an iterator or a coroutine, the time until its end is added."""
        kind = type(result)
        if self._row is not None and (kind in _LAZY or is_iterator(kind)):
            with self._stops.inside():
                self._row[1] += _time_of_rest(result)
        return result


_LAZY = (CoroutineType, AsyncGeneratorType)


def _time_of_rest(lazy: object) -> float:
    """The seconds until the end of what a call gave, seen in a fork: here it is untouched.

    0 if they can't be had.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            _leave_loop()
            with contextlib.redirect_stdout(io.StringIO()):
                began = perf_counter()
                _call(lambda: lazy, ((), {}))
            os.write(writing, struct.pack("d", perf_counter() - began))
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready = select.select([reading], [], [], _LAZY_SECONDS)[0]
        data = os.read(reading, 8) if ready else b""
    finally:
        os.close(reading)
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return float(struct.unpack("d", data)[0]) if len(data) == 8 else 0.0  # noqa: PLR2004 - a double


def _leave_loop() -> None:
    """In a fork: a loop may be running, of the process it was forked from."""
    if "asyncio" in sys.modules:
        sys.modules["asyncio"]._set_running_loop(None)  # noqa: SLF001


def _copied(value: Any) -> Any | None:  # noqa: ANN401 - arguments
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - whatever its __deepcopy__ raises
        return None


class Holder:
    """A process that stands before one call, and has it made as often as it is told."""

    def __init__(
        self,
        directory: str,
        number: int,
        name: str,
        function: Callable[..., Any] | None,
        given: tuple[Any, Any],
    ) -> None:
        self._down = os.open(os.path.join(directory, f"down-{number}"), os.O_RDWR | os.O_CLOEXEC)
        self._up = os.open(os.path.join(directory, "up"), os.O_RDWR | os.O_CLOEXEC)
        self._name, self._function, self._given = name, function, given
        if getattr(getattr(function, "__code__", None), "co_flags", 0) & _ASYNCHRONOUS:
            importlib.import_module(
                "asyncio"
            )  # before a clock runs; nobody else has to wait for it

    def serve(self) -> NoReturn:
        """Wait for orders, for ever: the jail ends it."""
        # What is here now is nothing that a collection in the forks would have to look at.
        gc.freeze()
        while True:
            order = json.loads(self._line())
            if not os.fork():
                try:
                    self._obey(order)
                except BaseException as error:  # noqa: BLE001 - told, whatever it is
                    self._say({"broken": f"{type(error).__name__}: {error}"[:300]})
                os._exit(0)
            os.wait()
            self._say({"over": True})

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._down, 1)
        return line

    def _say(self, what: object) -> None:
        data = json.dumps(what).encode("ascii") + b"\n"
        while data:
            data = data[os.write(self._up, data) :]

    def _obey(self, order: dict[str, Any]) -> None:
        _leave_loop()
        _begin_on(order.get("cpu"))
        chunks: list[int] = order["chunks"]
        calls = sum(chunks)
        given = [self._copy(needed=calls > 1) for _ in range(calls)]
        with contextlib.redirect_stdout(io.StringIO()):
            if order["do"] == "profile":
                return self._say(LineCounter(order["file"]).of(self._function, given[0]))
            if order["do"] == "memory":
                tracemalloc.start()
                _call(self._function, given[0])
                return self._say({"peak": tracemalloc.get_traced_memory()[1]})
            if order["do"] == "count":
                return self._say(counted(order["event"], lambda: _call(self._function, given[0])))
            first, last = self._timed(given, chunks)
        records = [self._record(given[0], first)] + (
            [self._record(given[-1], last)] if calls > 1 else []
        )
        data = encode(records)
        self._say({"digest": hashlib.sha256(data).hexdigest()})
        if self._line() == b"show\n":
            self._say({"record": data.decode("ascii")})
        return None

    def _copy(self, *, needed: bool) -> tuple[Any, Any]:
        """The arguments once more.

        As they are, if they can't be copied and are called with once.
        """
        found = _copied(self._given)
        if found is None and needed:
            raise ValueError("its arguments can't be copied")
        return self._given if found is None else cast("tuple[Any, Any]", found)

    def _timed(self, given: list[Any], chunks: list[int]) -> tuple[object, object]:
        """All calls, by chunks: each between the parent's word and ours.

        What the first and the last gave.
        """
        function, call, up, at = self._function, _call, self._up, 0
        first = last = None
        self._say({"ready": True})
        for size in chunks:
            now = given[at : at + size]
            self._line()
            for one in now:
                last = call(function, one)
            os.write(up, b"done\n")
            first = first if at else last
            at += size
        return first, last

    def _record(self, given: tuple[Any, Any], end: object) -> Invocation:
        """What a call did, as the judge wants it: made again from its end, not called once more."""
        value, error = cast("tuple[object, BaseException | None]", end)

        def again(*_: object, **__: object) -> object:
            if error is not None:
                raise error
            return value

        args, kwargs = given
        return observe(self._name, again, *args, **kwargs)


def _begin_on(cpu: int | None) -> None:
    """Move to that CPU; the system may move it on from there, if that is busy."""
    if cpu is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            allowed = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {cpu})
            os.sched_setaffinity(0, allowed)


def _call(function: Any, given: tuple[Any, Any]) -> tuple[object, BaseException | None]:  # noqa: ANN401
    """One call to its very end: what is lazy is used up."""
    args, kwargs = given
    try:
        result = function(*args, **kwargs)
        kind = type(result)
        if kind is CoroutineType or kind is AsyncGeneratorType:
            result = _run(result)
        elif is_iterator(kind):
            result = list(itertools.islice(result, _BOUND))
    except BaseException as error:  # noqa: BLE001 - it is what the call did
        return None, error
    return result, None


def _run(lazy: Any) -> object:  # noqa: ANN401
    async def listed() -> list[object]:
        return [one async for one in lazy]

    with importlib.import_module("asyncio").Runner() as runner:
        return runner.run(listed() if type(lazy) is AsyncGeneratorType else lazy)


_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_USER_ONLY = 1 << 5 | 1 << 6  # neither the kernel's nor a hypervisor's


def counted(event: list[int], call: Callable[[], object]) -> dict[str, object]:
    """What a counter of the machine counts in one call.

    Or why there is none. `event` is its type and its number.
    """
    ctypes = importlib.import_module("ctypes")  # only where it is needed
    number = _PERF_EVENT_OPEN.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        return {"uncounted": f"not known how, on {sys.platform} {os.uname().machine}"}
    system = ctypes.CDLL(None, use_errno=True)
    about = struct.pack("IIQQQQQQQ", event[0], 64, event[1], 0, 0, 0, _USER_ONLY, 0, 0)
    counter = system.syscall(number, about, 0, -1, -1, 0)
    if counter < 0:
        why = ctypes.get_errno()
        none = (
            "this machine has no counter for them"
            if why in {errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP}
            else ""
        )
        return {"uncounted": none or os.strerror(why)}
    try:
        looks = [_look(counter), _look(counter)]
        call()
        looks.append(_look(counter))
    finally:
        os.close(counter)
    return {"count": max(0, looks[2] - looks[1] - (looks[1] - looks[0]))}


def _look(counter: int) -> int:
    return int.from_bytes(os.read(counter, 8), sys.byteorder)


class LineCounter:
    """How often each line of a file is run, and for how long."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._hits: Counter[int] = Counter()
        self._seconds: Counter[int] = Counter()
        self._at: dict[FrameType, tuple[int, float]] = {}
        self._codes: dict[CodeType, bool] = {}

    def of(self, function: Any, given: tuple[Any, Any]) -> dict[str, Any]:  # noqa: ANN401
        """Of one call."""
        sys.settrace(self._trace)
        try:
            _call(function, given)
        finally:
            sys.settrace(None)
        return {
            "lines": [
                [line, hits, self._seconds[line]] for line, hits in sorted(self._hits.items())
            ]
        }

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - settrace's shape
        code = frame.f_code
        if code not in self._codes:
            self._codes[code] = os.path.realpath(code.co_filename) == self._file
        if not self._codes[code]:
            return None
        now = perf_counter()
        if frame in self._at:
            line, since = self._at.pop(frame)
            self._seconds[line] += now - since  # type: ignore[assignment] # of floats
        if event == "line":
            self._hits[frame.f_lineno] += 1
            self._at[frame] = (frame.f_lineno, perf_counter())
        return self._trace


def main(directory: str) -> None:
    """Be the child: run the tests, stop where it is wanted, tell that all are there, and wait for the end."""
    with open(os.path.join(directory, "orders.json"), encoding="utf-8") as file:
        orders = json.load(file)
    up = os.open(os.path.join(directory, "up"), os.O_RDWR | os.O_CLOEXEC)
    stops = Stops(directory, orders["wanted"], digests=orders["digests"])
    places = Places(orders["top"], orders["slot"])
    target = os.path.realpath(os.path.join(places.slot, orders["file"]))
    set_path(target)

    def around(module: ModuleType, carry_out: Callable[[], None]) -> None:
        carry_out()
        owner, name, held = find(module, orders["qualname"])
        stops.function = install(module, orders["qualname"], cast("Any", stops))
        stops.undo.append(lambda: setattr(owner, name, held))

    sys.meta_path.insert(0, SlotFinder(places, target, around))
    suite = Suite(Channel(os.path.join(directory, "said")), cast("Any", stops), lambda: None)
    failed = ""
    try:
        suite.run(orders["names"], orders["extra"])
    except BaseException as error:  # noqa: BLE001 - told, whatever it is
        failed = f"{type(error).__name__}: {error}"[:300]
    told = {
        "held": stops.held,
        "calls": stops.calls,
        "uncounted": stops.uncounted,
        "failed": failed,
    }
    data = json.dumps(told).encode("ascii") + b"\n"
    while data:
        data = data[os.write(up, data) :]
    os.read(os.open(os.path.join(directory, "down"), os.O_RDWR | os.O_CLOEXEC), 1)
    os._exit(0)
