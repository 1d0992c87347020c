"""Watches the target while the tests call it: what came in, what went out, and what it did on the way.

Only the outermost call counts. A call that the target makes of itself, directly or by way of
others, is how it does its work, not what it does: a candidate may well loop where the original
recurses.

The caller gets what the function gave. An iterator is handed on value by value, each noted as it
passes, so that a test that takes three values of an endless one is watched like any other, and
laziness stays what it was.
"""

from __future__ import annotations

import contextlib
import functools
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

from abreast.jobs.candidates.child.channel import Channel
from abreast.jobs.candidates.values.invocation import Invocation, encode
from abreast.jobs.candidates.values.large import Place, WantedSlices
from abreast.jobs.candidates.values.snapshot import SnapshotNode, ValueSnapshot
from abreast.jobs.candidates.values.stdlib_types import is_iterator, label
from abreast.jobs.candidates.values.take_snapshot import take_snapshot

Function = Callable[..., Any]

MOST_CALLS = 4_000
"""Calls that are noted, of all tests; more are counted."""
MOST_OF_A_TEST = 400
MOST_BYTES = 48 << 20
"""Bytes of all that is noted as it is; of what comes after them, digests are."""
MOST_OF_A_CALL = 8 << 20
"""Bytes of one call; of a larger one, digests are noted."""
MOST_VALUES = 10_000
"""Values of one iterator."""
MOST_PARTS = 100_000
"""Parts of one value."""

_ACTIVE: ContextVar[CapturedCall | object | None] = ContextVar("watched", default=None)
_OURS = object()


def active() -> bool:
    """Whether the target is being carried out here."""
    return _ACTIVE.get() is not None


class Recorder:
    """Notes every outermost call, named for the test that made it and its number in that test."""

    def __init__(self, channel: Channel, wanted: Sequence[Any] = ()) -> None:
        """`wanted` are slices of large values that are told as they are: call, part, node and slice of each."""
        self._wanted: dict[tuple[str, str], set[Place]] = {}
        for name, part, node, at in wanted:
            self._wanted.setdefault((str(name), str(part)), set()).add((int(node), int(at)))
        self.test = "<collection>"
        """Which test is under way."""
        self._channel = channel
        self._counts: Counter[str] = Counter()
        self._cut: set[str] = set()
        self._open: dict[int, CapturedCall] = {}
        self._calls = self._bytes = 0
        self._printing = 0
        self._real: Any = None

    def begin(
        self, args: tuple[object, ...], kwargs: dict[str, object], *, method: bool
    ) -> CapturedCall | None:
        """A call begins; None if it is one that the target itself makes, or one too many."""
        if active():
            return None
        at = self._counts[self.test]
        self._counts[self.test] += 1
        self._calls += 1
        if at >= MOST_OF_A_TEST or self._calls > MOST_CALLS:
            if (
                self.test not in self._cut
            ):  # said once: what follows in this test may be a million calls
                self._cut.add(self.test)
                self._channel.say("cut", [self.test, at])
            return None
        call = CapturedCall(self, f"{self.test}#{at}", args, kwargs, method=method)
        self._open[id(call)] = call
        return call

    def note(self, call: CapturedCall, invocation: Invocation) -> None:
        """A call has ended."""
        if self._open.pop(id(call), None) is None:
            return
        data = encode([invocation])
        if len(data) > MOST_OF_A_CALL or self._bytes + len(data) > MOST_BYTES:
            data = encode([invocation.as_digests()])
        else:
            self._bytes += len(data)
        self._channel.say("call", data.decode("ascii"))

    def portray(self, value: object, name: str, part: str) -> ValueSnapshot:
        """The portrait of a part of a call; what is wanted of it is told."""
        wanted = WantedSlices(frozenset(self._wanted.get((name, part), ())))
        portrait = take_snapshot(value, consume=False, nodes=MOST_PARTS, wanted=wanted)
        for (node, at), content in wanted.found.items():
            self._channel.say("content", [name, part, node, at, content.nodes])
        return portrait

    def close(self) -> None:
        """Note what was begun and never ended: iterators that nobody used up."""
        for call in list(self._open.values()):
            call.finish()

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """While this lasts, the target runs on our own account: no call of it is noted."""
        token = _ACTIVE.set(_OURS)
        try:
            yield
        finally:
            _ACTIVE.reset(token)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """While this lasts, what a watched call prints is noted, and goes where it went before."""
        if not self._printing:
            self._real = sys.stdout
            sys.stdout = _Tee(self._real)
        self._printing += 1
        try:
            yield
        finally:
            self._printing -= 1
            if not self._printing and type(sys.stdout) is _Tee:
                sys.stdout = self._real


class _Tee:
    """Stdout, of which each watched call has a copy of its own part.

    It is no file: those close what they hold.
    """

    def __init__(self, real: Any) -> None:  # noqa: ANN401 - whatever stdout is
        self._real = real

    def write(self, text: str) -> int:
        """Write, and note who wrote it."""
        call = _ACTIVE.get()
        if isinstance(call, CapturedCall):
            call.printed.append(str(text))
        return int(self._real.write(text))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name == "writelines":
            return lambda lines: self.write("".join(lines))
        return getattr(self._real, name)


class CapturedCall:
    """One call, from its beginning to its end."""

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
        self._parts: dict[str, object] = (
            {"self": args[0], "arguments": args[1:]} if method and args else {}
        )
        self._parts = {"arguments": args, **self._parts, "keywords": kwargs}
        self._ends: dict[str, object] = {}
        self._source: type | None = None
        self._steps: list[ValueSnapshot] = []
        self.printed: list[str] = []
        self._before = recorder.portray(self._ordered(), name, "before")

    def _ordered(self) -> dict[str, object]:
        held = {**self._parts, **self._ends}
        order = ("self", "arguments", "keywords", "returned", "yielded", "raised")
        return {name: held[name] for name in order if name in held}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The target's own code runs now."""
        token = _ACTIVE.set(self)
        try:
            with self._recorder.listening():
                yield
        finally:
            with contextlib.suppress(
                ValueError
            ):  # an async generator that is closed in another context
                _ACTIVE.reset(token)

    def raised(self, error: BaseException) -> None:
        """It ended so."""
        self._ends["raised"] = error
        self.finish()

    def hand_on(self, result: object) -> object:
        """What the caller gets: the result, or what follows it to its end."""
        cls = type(result)
        if cls is CoroutineType:
            return self._awaited(cast("Coroutine[Any, Any, object]", result))
        if cls is AsyncGeneratorType:
            return self._followed(cast("AsyncGenerator[object, object]", result))
        if is_iterator(cls):
            return self._passed_on(cast("Generator[object, object, object]", result))
        self._ends["returned"] = result
        self.finish()
        return result

    async def _awaited(self, source: Coroutine[Any, Any, object]) -> object:
        with self.running():
            try:
                result = await source
            except BaseException as error:
                self.raised(error)
                raise
        return self.hand_on(result)

    def _start(self, source: object) -> list[object]:
        self._source = type(source)
        held: list[object] = []
        self._ends["yielded"] = held
        return held

    def _took(self, held: list[object], value: object) -> None:
        if len(held) < MOST_VALUES:
            self._steps.append(
                self._recorder.portray(value, self._name, f"step {len(self._steps)}")
            )
            held.append(value)

    def _passed_on(
        self, source: Generator[object, object, object]
    ) -> Generator[object, object, object]:
        held = self._start(source)
        step: Callable[[], object] = lambda: next(source)  # noqa: E731
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
            self._took(held, value)
            try:
                sent = yield value
            except GeneratorExit:
                if hasattr(source, "close"):
                    source.close()
                self.finish()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in by the caller, it is the target's
                step = functools.partial(source.throw, error)
            else:
                step = (
                    functools.partial(source.send, sent)
                    if sent is not None
                    else lambda: next(source)
                )

    async def _followed(self, source: AsyncGenerator[object, object]) -> AsyncIterator[object]:
        held = self._start(source)
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
            self._took(held, value)
            try:
                yield value
            except GeneratorExit:
                await source.aclose()
                self.finish()
                raise

    def finish(self) -> None:
        """All that is left, as one graph."""
        token = _ACTIVE.set(
            self
        )  # what is looked at may be the target's own, and must not be noted as a call
        try:
            after = _beyond_inner(
                self._recorder.portray(self._ordered(), self._name, "after"), self._source
            )
            printed = "".join(self.printed)
            self._recorder.note(
                self, Invocation(self._name, self._before, after, printed, tuple(self._steps))
            )
        finally:
            with contextlib.suppress(ValueError):
                _ACTIVE.reset(token)


def _beyond_inner(after: ValueSnapshot, source: type | None) -> ValueSnapshot:
    """Iterators inside of what came out were not looked into, so they are beyond comparison.

    Arguments are not.
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
