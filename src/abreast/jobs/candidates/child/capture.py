"""Traces the target while the tests call it: arguments, results, and side effects of each call.

Only outermost calls are recorded. A call of the target by itself, directly or through other
functions, is part of how it works, not of its behaviour: a candidate may loop where the original
recurses.

The caller gets what the function returned. An iterator is passed on value by value and each value
is recorded as it passes, so that a test that takes three values of an endless iterator is traced
like any other, and lazy results stay lazy.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Sequence,
)
from contextvars import ContextVar
from types import AsyncGeneratorType, CoroutineType
from typing import Any, cast

from abreast.jobs.candidates.values.invocation import Invocation, encode
from abreast.jobs.candidates.values.large import Place, WantedSlices
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot
from abreast.jobs.candidates.values.stdlib_types import is_iterator, label
from abreast.jobs.candidates.values.take_snapshot import take_snapshot

Function = Callable[..., Any]

MOST_CALLS = 4_000  # that are recorded, of all tests; further ones are only counted
MOST_OF_A_TEST = 400
MOST_BYTES = 48 << 20  # of all calls that are recorded in full; later ones are digested
MOST_OF_A_CALL = 8 << 20  # bytes of one call; a larger one is recorded as digests
MOST_VALUES = 10_000  # of one iterator that are recorded
MOST_PARTS = 100_000  # of one value that are recorded

_ACTIVE_CALL: ContextVar[CapturedCall | object | None] = ContextVar("watched", default=None)
_UNTRACED = object()


def active() -> bool:
    """Whether the target is running in this context."""
    return _ACTIVE_CALL.get() is not None


@contextlib.contextmanager
def _active_call(call: CapturedCall | object) -> Iterator[None]:
    token = _ACTIVE_CALL.set(call)
    try:
        yield
    finally:
        # ValueError: an async generator was closed in another context.
        with contextlib.suppress(ValueError):
            _ACTIVE_CALL.reset(token)


def untraced() -> contextlib.AbstractContextManager[None]:
    """Within this context, calls of the target are not recorded."""
    return _active_call(_UNTRACED)


def write_line(file: int, content: object) -> None:
    """Write a line of JSON to a descriptor."""
    data = json.dumps(content, separators=(",", ":")).encode("ascii") + b"\n"
    while data:
        data = data[os.write(file, data) :]


class Channel:
    """The file through which the child reports to the parent: lines of JSON, each written at once.

    What was written survives a crash of the child. Only the process that opened it writes.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._owner = os.getpid()
        self._sent: set[str] = set()

    def send(self, kind: str, content: object) -> None:
        """Write a line. A forked process writes nothing."""
        if os.getpid() == self._owner:
            write_line(self._file, [kind, content])

    def send_once(self, kind: str, content: str, most: int = 200) -> None:
        """Write a line unless it was written before, or `most` others were."""
        if content not in self._sent and len(self._sent) < most:
            self._sent.add(content)
            self.send(kind, content)


class Recorder:
    """Records every outermost call, named after the test and its number in that test."""

    def __init__(self, channel: Channel, wanted: Sequence[Any] = ()) -> None:
        """`wanted` are slices of large values to report in full: call, part, node, slice each."""
        self._wanted: dict[tuple[str, str], set[Place]] = {}
        for name, part, node, at in wanted:
            self._wanted.setdefault((str(name), str(part)), set()).add((int(node), int(at)))
        self.test = "<collection>"  # the test that is running
        self.channel = channel
        self._counts: Counter[str] = Counter()
        self._cut_tests: set[str] = set()
        self._open: dict[int, CapturedCall] = {}
        self._calls = self._bytes = 0
        self._capture_depth = 0
        self._stdout: Any = None

    def begin(
        self, args: tuple[object, ...], kwargs: dict[str, object], *, method: bool
    ) -> CapturedCall | None:
        """Begin a call; None if the target makes it itself, or if there are too many calls."""
        if active():
            return None
        at = self._counts[self.test]
        self._counts[self.test] += 1
        self._calls += 1
        if at >= MOST_OF_A_TEST or self._calls > MOST_CALLS:
            # Reported once per test: it may make a million more calls.
            if self.test not in self._cut_tests:
                self._cut_tests.add(self.test)
                self.channel.send("cut", [self.test, at])
            return None
        call = CapturedCall(self, f"{self.test}#{at}", args, kwargs, method=method)
        self._open[id(call)] = call
        return call

    def note(self, call: CapturedCall, invocation: Invocation) -> None:
        """Record a call that has ended."""
        if self._open.pop(id(call), None) is None:
            return
        data = encode([invocation])
        if len(data) > MOST_OF_A_CALL or self._bytes + len(data) > MOST_BYTES:
            data = encode([invocation.as_digests()])
        else:
            self._bytes += len(data)
        self.channel.send("call", data.decode("ascii"))

    def snapshot_of(self, value: object, name: str, part: str) -> ValueSnapshot:
        """Take the snapshot of a part of a call, and report the wanted slices of it."""
        wanted = WantedSlices(frozenset(self._wanted.get((name, part), ())))
        snapshot = take_snapshot(value, consume=False, nodes=MOST_PARTS, wanted=wanted)
        for (node, at), content in wanted.found.items():
            self.channel.send("content", [name, part, node, at, content.nodes])
        return snapshot

    def close(self) -> None:
        """Record calls that began and have not ended: iterators that were not exhausted."""
        for call in list(self._open.values()):
            call.finish()

    def untraced(self) -> contextlib.AbstractContextManager[None]:
        """Within this context, calls of the target are not recorded."""
        return untraced()

    @contextlib.contextmanager
    def capturing_stdout(self) -> Iterator[None]:
        """Within this context, what a traced call prints is recorded, and printed as before."""
        if not self._capture_depth:
            self._stdout = sys.stdout
            sys.stdout = _Tee(self._stdout)
        self._capture_depth += 1
        try:
            yield
        finally:
            self._capture_depth -= 1
            if not self._capture_depth and type(sys.stdout) is _Tee:
                sys.stdout = self._stdout


class _Tee:
    """Passes writes on to stdout, and copies what a traced call writes to that call.

    It is not a file object, since those close the stream they hold.
    """

    def __init__(self, real: Any) -> None:  # noqa: ANN401 - stdout may be any object
        self._stdout = real

    def write(self, text: str) -> int:
        """Write, and record the text with the call that wrote it."""
        call = _ACTIVE_CALL.get()
        if isinstance(call, CapturedCall):
            call.printed.append(str(text))
        return int(self._stdout.write(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of stdout
        if name == "writelines":
            return lambda lines: self.write("".join(lines))
        return getattr(self._stdout, name)


class CapturedCall:
    """One traced call, from its beginning to its end."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        *,
        method: bool,
    ) -> None:
        self._recorder, self._name = recorder, name
        self._parts: dict[str, object] = {"arguments": args, "keywords": kwargs}
        if method and args:
            self._parts |= {"self": args[0], "arguments": args[1:]}
        self._ends: dict[str, object] = {}
        self._source: type | None = None
        self._steps: list[ValueSnapshot] = []
        self.printed: list[str] = []
        self._before = recorder.snapshot_of(self._parts_in_order(), name, "before")

    def _parts_in_order(self) -> dict[str, object]:
        held = {**self._parts, **self._ends}
        order = ("self", "arguments", "keywords", "returned", "yielded", "raised")
        return {name: held[name] for name in order if name in held}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Within this context, the target's own code runs."""
        with _active_call(self), self._recorder.capturing_stdout():
            yield

    def raised(self, error: BaseException) -> None:
        """Record that the call ended with this exception."""
        self._ends["raised"] = error
        self.finish()

    def hand_on(self, result: object) -> object:
        """Return what the caller gets: the result, or a wrapper that follows a lazy result."""
        cls = type(result)
        if cls is CoroutineType:
            return self._follow_coroutine(cast("Coroutine[Any, Any, object]", result))
        if cls is AsyncGeneratorType:
            return self._follow_async_generator(cast("AsyncGenerator[object, object]", result))
        if is_iterator(cls):
            return self._follow_iterator(cast("Generator[object, object, object]", result))
        self._ends["returned"] = result
        self.finish()
        return result

    async def _follow_coroutine(self, source: Coroutine[Any, Any, object]) -> object:
        with self.running():
            try:
                result = await source
            except BaseException as error:
                self.raised(error)
                raise
        return self.hand_on(result)

    def _begin_yielding(self, source: object) -> list[object]:
        self._source = type(source)
        self._ends["yielded"] = held = list[object]()
        return held

    def _record_value(self, held: list[object], value: object) -> None:
        if len(held) < MOST_VALUES:
            self._steps.append(
                self._recorder.snapshot_of(value, self._name, f"step {len(self._steps)}")
            )
            held.append(value)

    def _follow_iterator(
        self, source: Generator[object, object, object]
    ) -> Generator[object, object, object]:
        held = self._begin_yielding(source)
        step: Callable[[], object] = lambda: next(source)  # noqa: E731 - reassigned below
        while True:
            with self.running():
                try:
                    value = step()
                except StopIteration as stop:
                    if stop.value is not None:
                        self._ends["returned"] = stop.value
                    self.finish()
                    return stop.value
                except BaseException as error:
                    self.raised(error)
                    raise
            self._record_value(held, value)
            try:
                sent = yield value
            except GeneratorExit:
                if hasattr(source, "close"):
                    source.close()
                self.finish()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in by the caller, for the target
                step = functools.partial(source.throw, error)
            else:
                step = (
                    functools.partial(source.send, sent)
                    if sent is not None
                    else lambda: next(source)
                )

    async def _follow_async_generator(
        self, source: AsyncGenerator[object, object]
    ) -> AsyncIterator[object]:
        held = self._begin_yielding(source)
        while True:
            with self.running():
                try:
                    value = await anext(source)
                except StopAsyncIteration:
                    self.finish()
                    return
                except BaseException as error:
                    self.raised(error)
                    raise
            self._record_value(held, value)
            try:
                yield value
            except GeneratorExit:
                await source.aclose()
                self.finish()
                raise

    def finish(self) -> None:
        """Take the snapshot after the call, as one graph, and record the call."""
        # Taking the snapshot may call the target itself; that must not be recorded as a call.
        with _active_call(self):
            after = _mark_inner_iterators(
                self._recorder.snapshot_of(self._parts_in_order(), self._name, "after"),
                self._source,
            )
            self._recorder.note(
                self,
                Invocation(
                    self._name, self._before, after, "".join(self.printed), tuple(self._steps)
                ),
            )


def _mark_inner_iterators(after: ValueSnapshot, source: type | None) -> ValueSnapshot:
    """Mark iterators inside results as not comparable, since their values were not recorded.

    Those in arguments are left as they are.
    """
    nodes = list(after.nodes)
    root = nodes[0]
    given: set[int] = set()
    waiting: list[int] = []
    for key, value in zip(root.items[::2], root.items[1::2], strict=True):
        part = nodes[key].value
        if part in {"self", "arguments", "keywords"}:
            waiting.append(value)
        elif part == "yielded" and source is not None:
            kind = "iterator" if nodes[value].kind == "items" else nodes[value].kind
            nodes[value] = nodes[value]._replace(kind=kind, type=label(source))
    while waiting:
        at = waiting.pop()
        if at not in given:
            given.add(at)
            waiting += nodes[at].parts
    for at, node in enumerate(nodes):
        if node.kind == "pending" and at not in given:
            nodes[at] = SnapshotNode("unknown", node.type, "an iterator inside of what came out")
    return ValueSnapshot(tuple(nodes))
