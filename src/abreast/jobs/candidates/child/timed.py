"""The child's program for timing: waits before calls of the target, and makes them on order.

Before a wanted call, the process forks, and the fork (a holder) waits there with the arguments as
they came. Each order to a holder forks once more, and that process makes the calls. So every order
starts from the same state, in which the target has never seen these arguments: a candidate gains
nothing from what it keeps between calls. The parent takes the time, from its `go` to the `done`.
The trace of the calls is reported afterwards and compared in the parent.

It runs under the project's interpreter, and imports only modules of the bundle.
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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from time import perf_counter  # noqa: TID251 - a coarse estimate; no candidate is accepted by it
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, ModuleType
from typing import Any, NoReturn, cast

from abreast.jobs.candidates.child.capture import Channel, write_line
from abreast.jobs.candidates.child.paths import Places, SlotFinder, set_path
from abreast.jobs.candidates.child.workloads import run_suite
from abreast.jobs.candidates.child.wrapping import find, install
from abreast.jobs.candidates.values.invocation import Invocation, encode, observe
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.stdlib_types import is_iterator
from abreast.jobs.candidates.values.take_snapshot import take_snapshot

MOST_CALLS = 2_000  # for which digests of arguments are taken, and copying is tried
MOST_TIMED = 50_000  # whose seconds are recorded
_LAZY_RESULT_SECONDS = 20.0  # that a fork may take to exhaust a lazy result
_MAX_VALUES = 10_000  # of an iterator
_ASYNCHRONOUS = CO_COROUTINE | CO_ASYNC_GENERATOR


class _CallStopper:
    """Takes the place of a recorder: numbers outermost calls, and forks before the wanted ones."""

    def __init__(self, directory: str, wanted: list[str], *, digests: bool = True) -> None:
        self.test = "<collection>"
        # The name, seconds, digest of arguments and copyability of each. The digest is empty if it
        # was not taken: if it was not requested, or if there are wanted calls.
        self.calls: list[list[Any]] = []
        self.uncounted = 0  # calls beyond those
        self._digests = digests
        self.held: list[str] = []
        self.function: Callable[..., Any] | None = None
        self.undo: list[Callable[[], None]] = []  # puts the original target back in its place
        self._directory, self.wanted = directory, wanted
        self._counts: Counter[str] = Counter()
        self._inside = False

    def begin(
        self, args: tuple[object, ...], kwargs: dict[str, object], *, method: bool
    ) -> _OuterCall | None:
        """Begin a call; None if the target makes it itself."""
        del method  # `self` is the first argument
        if self._inside:
            return None
        name = f"{self.test}#{self._counts[self.test]}"
        self._counts[self.test] += 1
        if name in self.wanted and name not in self.held:
            self.held.append(name)
            if not os.fork():
                # Calls of the target by itself must not pass through this code while it is timed.
                for one in self.undo:
                    one()
                CallHolder(
                    self._directory, self.wanted.index(name), name, self.function, (args, kwargs)
                ).serve()
        if len(self.calls) >= MOST_TIMED:
            self.uncounted += 1
            return _OuterCall(self, None)
        digest, copyable = "", False
        if self._digests and not self.wanted and len(self.calls) < MOST_CALLS:
            digest = hashlib.sha256(pack(take_snapshot((args, kwargs), consume=False))).hexdigest()[
                :16
            ]
            copyable = _copy_or_none((args, kwargs)) is not None
        return _OuterCall(self, [name, 0.0, digest, copyable])

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False


class _OuterCall:
    """An outermost call; its time is recorded if there is a row for it."""

    def __init__(self, stopper: _CallStopper, row: list[Any] | None) -> None:
        self._stopper, self._row = stopper, row

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._stopper.inside():
            began = perf_counter()
            try:
                yield
            finally:
                if self._row is not None:
                    self._row[1] = perf_counter() - began
                    self._stopper.calls.append(self._row)

    def raised(self, error: BaseException) -> None:
        """Do nothing: it does not matter how the call ends."""

    def hand_on(self, result: object) -> object:
        """Return the result. For a lazy one, add the time until its end to the call's.

        Where there are wanted calls, it is only counted: that takes a fork for each.
        """
        kind = type(result)
        if self._row is not None and (_is_async(kind) or is_iterator(kind)):
            if self._stopper.wanted:
                self._stopper.uncounted += 1
                return result
            with self._stopper.inside():
                self._row[1] += _lazy_result_seconds(result)
        return result


def _is_async(kind: type) -> bool:
    return kind is CoroutineType or kind is AsyncGeneratorType


def _lazy_result_seconds(lazy: object) -> float:
    """Return the seconds until a lazy result is exhausted, measured in a fork.

    The result itself is not touched. 0 if the time can't be measured.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            _forget_running_loop()
            with contextlib.redirect_stdout(io.StringIO()):
                began = perf_counter()
                _call(lambda: lazy, ((), {}))
            os.write(writing, struct.pack("d", perf_counter() - began))
        finally:
            os._exit(0)
    os.close(writing)
    try:
        ready = select.select([reading], [], [], _LAZY_RESULT_SECONDS)[0]
        data = os.read(reading, 8) if ready else b""
    finally:
        os.close(reading)
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return float(struct.unpack("d", data)[0]) if len(data) == 8 else 0.0  # noqa: PLR2004 - a double


def _forget_running_loop() -> None:
    """Clear the running event loop, which a fork has inherited from its parent."""
    if "asyncio" in sys.modules:
        sys.modules["asyncio"]._set_running_loop(None)  # noqa: SLF001 - there is no public way


def _copy_or_none(value: Any) -> Any | None:  # noqa: ANN401 - arguments
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - __deepcopy__ may raise anything
        return None


class CallHolder:
    """A process that waits before one call, and has it made as often as it is ordered."""

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
            # Before any clock runs. Other functions do not wait for this import.
            importlib.import_module("asyncio")

    def serve(self) -> NoReturn:
        """Wait for orders until the sandbox ends the process."""
        # Garbage collections in the forks need not visit the objects that exist now.
        gc.freeze()
        while True:
            order = json.loads(self._read_line())
            if not os.fork():
                try:
                    self._execute(order)
                except BaseException as error:  # noqa: BLE001 - every failure is reported
                    write_line(self._up, {"broken": f"{type(error).__name__}: {error}"[:300]})
                os._exit(0)
            os.wait()
            write_line(self._up, {"over": True})

    def _read_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._down, 1)
        return line

    def _execute(self, order: dict[str, Any]) -> None:
        _forget_running_loop()
        _begin_on(order.get("cpu"))
        chunks: list[int] = order["chunks"]
        calls = sum(chunks)
        given = [self._copy(needed=calls > 1) for _ in range(calls)]
        with contextlib.redirect_stdout(io.StringIO()):
            if order["do"] != "time":
                return write_line(self._up, self._ask(order, given[0]))
            first, last = self._timed(given, chunks)
        ends = [(given[0], first), (given[-1], last)][: 2 if calls > 1 else 1]
        data = encode([self._record(*one) for one in ends])
        write_line(self._up, {"digest": hashlib.sha256(data).hexdigest()})
        if self._read_line() == b"show\n":
            write_line(self._up, {"record": data.decode("ascii")})
        return None

    def _ask(self, order: dict[str, Any], given: tuple[Any, Any]) -> dict[str, Any]:
        if order["do"] == "profile":
            return count_lines(order["file"], lambda: _call(self._function, given))
        if order["do"] == "count":
            return count_event(order["event"], lambda: _call(self._function, given))
        tracemalloc.start()
        _call(self._function, given)
        return {"peak": tracemalloc.get_traced_memory()[1]}

    def _copy(self, *, needed: bool) -> tuple[Any, Any]:
        """Copy the arguments; return them as they are if they can't be copied and are used once."""
        found = _copy_or_none(self._given)
        if found is None and needed:
            raise ValueError("its arguments can't be copied")
        return self._given if found is None else cast("tuple[Any, Any]", found)

    def _timed(self, given: list[Any], chunks: list[int]) -> tuple[object, object]:
        """Make all calls by chunks, each between the parent's `go` and a `done`.

        Returns the results of the first and the last call.
        """
        function, call, up, at = self._function, _call, self._up, 0
        first = last = None
        write_line(self._up, {"ready": True})
        for size in chunks:
            now = given[at : at + size]
            self._read_line()
            for one in now:
                last = call(function, one)
            os.write(up, b"done\n")
            first = first if at else last
            at += size
        return first, last

    def _record(self, given: tuple[Any, Any], end: object) -> Invocation:
        """Return the trace of a call, made from its result without calling the target again."""
        value, error = cast("tuple[object, BaseException | None]", end)

        def again(*_: object, **__: object) -> object:
            if error is not None:
                raise error
            return value

        args, kwargs = given
        return observe(self._name, again, *args, **kwargs)


def _begin_on(cpu: int | None) -> None:
    """Move to that CPU; the system may move the process from there if the CPU is busy."""
    if cpu is not None and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            allowed = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {cpu})
            os.sched_setaffinity(0, allowed)


def _call(function: Any, given: tuple[Any, Any]) -> tuple[object, BaseException | None]:  # noqa: ANN401 - any function
    """Make one call and exhaust a lazy result; return the result, or the exception."""
    args, kwargs = given
    try:
        result = function(*args, **kwargs)
        if _is_async(type(result)):
            result = _run_async(result)
        elif is_iterator(type(result)):
            result = list(itertools.islice(result, _MAX_VALUES))
    except BaseException as error:  # noqa: BLE001 - it is the result of the call
        return None, error
    return result, None


def _run_async(lazy: Any) -> object:  # noqa: ANN401 - a coroutine or async generator
    async def listed() -> list[object]:
        return [one async for one in lazy]

    with importlib.import_module("asyncio").Runner() as runner:
        return runner.run(listed() if type(lazy) is AsyncGeneratorType else lazy)


_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
_USER_ONLY = 1 << 5 | 1 << 6  # exclude kernel and hypervisor


def count_event(event: list[int], call: Callable[[], object]) -> dict[str, object]:
    """Count a hardware event during one call; `event` is its type and number.

    The answer has the count, or the reason why there is none.
    """
    ctypes = importlib.import_module("ctypes")  # imported only where it is needed
    number = _PERF_EVENT_OPEN.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None:
        return {"uncounted": f"not known how, on {sys.platform} {os.uname().machine}"}
    system = ctypes.CDLL(None, use_errno=True)
    about = struct.pack("IIQQQQQQQ", event[0], 64, event[1], 0, 0, 0, _USER_ONLY, 0, 0)
    if (counter := system.syscall(number, about, 0, -1, -1, 0)) < 0:
        why = ctypes.get_errno()
        absent = why in {errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP}
        return {"uncounted": "this machine has no counter for them" if absent else os.strerror(why)}
    try:
        looks = [_read_counter(counter), _read_counter(counter)]
        call()
        looks.append(_read_counter(counter))
    finally:
        os.close(counter)
    return {"count": max(0, looks[2] - looks[1] - (looks[1] - looks[0]))}


def _read_counter(counter: int) -> int:
    return int.from_bytes(os.read(counter, 8), sys.byteorder)


def count_lines(file: str, call: Callable[[], object]) -> dict[str, Any]:
    """Count how often each line of a file runs during one call, and for how long."""
    hits: Counter[int] = Counter()
    seconds: dict[int, float] = defaultdict(float)
    at: dict[FrameType, tuple[int, float]] = {}
    known: dict[CodeType, bool] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - as settrace wants
        code = frame.f_code
        if code not in known:
            known[code] = os.path.realpath(code.co_filename) == file
        if not known[code]:
            return None
        now = perf_counter()
        if frame in at:
            line, since = at.pop(frame)
            seconds[line] += now - since
        if event == "line":
            hits[frame.f_lineno] += 1
            at[frame] = (frame.f_lineno, perf_counter())
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return {"lines": [[line, count, seconds[line]] for line, count in sorted(hits.items())]}


def main(directory: str) -> None:
    """Run the tests with a holder at each wanted call, report the calls, and wait for the end."""
    with open(os.path.join(directory, "orders.json"), encoding="utf-8") as file:
        orders = json.load(file)
    up = os.open(os.path.join(directory, "up"), os.O_RDWR | os.O_CLOEXEC)
    stopper = _CallStopper(directory, orders["wanted"], digests=orders["digests"])
    places = Places(orders["top"], orders["slot"], orders["removed"])
    target = os.path.realpath(os.path.join(places.slot, orders["file"]))
    set_path(target)

    def around(module: ModuleType, execute: Callable[[], None]) -> None:
        execute()
        owner, name, held = find(module, orders["qualname"])
        stopper.function = install(module, orders["qualname"], cast("Any", stopper))
        stopper.undo.append(lambda: setattr(owner, name, held))

    sys.meta_path.insert(0, SlotFinder(places, target, around))
    channel = Channel(os.path.join(directory, "said"))
    failed = ""
    try:
        run_suite(orders, target, channel, cast("Any", stopper), lambda: None)
    except BaseException as error:  # noqa: BLE001 - every failure is reported
        failed = f"{type(error).__name__}: {error}"[:300]
    write_line(
        up,
        {
            "held": stopper.held,
            "calls": stopper.calls,
            "uncounted": stopper.uncounted,
            "failed": failed,
        },
    )
    os.read(os.open(os.path.join(directory, "down"), os.O_RDWR | os.O_CLOEXEC), 1)
    os._exit(0)
