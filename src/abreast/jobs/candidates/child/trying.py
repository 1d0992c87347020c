"""Builds generated inputs from their descriptions, and calls the target with them.

Each has a CPU limit of its own for the original.
"""

import contextlib
import datetime as dt
import decimal
import enum
import fractions
import functools
import importlib
import inspect
import pathlib
import signal
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, cast

from abreast.jobs.candidates.child.capture import MOST_OF_A_CALL, Function, Recorder
from abreast.jobs.candidates.values.invocation import Invocation, encode, observe, observe_async

_MAX_VALUES = 500  # of an iterator
_KILL_FACTOR = 20  # times the CPU limit, after which the process is killed


class TrialTooLong(BaseException):
    """An input takes the original longer than its CPU limit."""


@contextlib.contextmanager
def _cpu_limit(seconds: float) -> Iterator[list[bool]]:
    """Raise `TrialTooLong` in the block after so many seconds of CPU; 0 means no limit.

    CPU time is used because other processes may be busy. The list is not empty after the limit
    expired: the function, or the code that observes it, may catch the exception. Code in C that
    never returns to Python ends the process after `_KILL_FACTOR` times as long.
    """
    expired: list[bool] = []

    def expire(*_: object) -> None:
        expired.append(True)
        raise TrialTooLong

    before = signal.signal(signal.SIGPROF, expire)
    last = signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, _KILL_FACTOR * seconds)
    try:
        yield expired
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGPROF, before)
        signal.signal(signal.SIGVTALRM, last)


def try_inputs(
    recorder: Recorder,
    inputs: dict[str, Any],
    module: ModuleType,
    qualname: str,
    function: Function,
) -> None:
    """Call the function with each input; report those that can't be built or do not end.

    The inputs are `{"seconds": ..., "calls": [{"name", "self", "args", "kwargs"}]}`.
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 3_000))
    for one in inputs["calls"]:
        name = str(one["name"])
        recorder.channel.send("trying", name)
        try:
            bound = _bind(one, module, qualname, function)
            args = cast("list[object]", build(one["args"]))
            kwargs = cast("dict[str, object]", build(one["kwargs"]))
        except Unbuildable as reason:
            recorder.channel.send("dropped", [name, f"it can't be made again ({reason})"])
            continue
        data = b""
        with contextlib.suppress(TrialTooLong), _cpu_limit(float(inputs["seconds"])) as expired:
            data = encode([_observe(recorder, name, bound, args, kwargs)])
        if expired or len(data) > MOST_OF_A_CALL:
            why = "it takes the original too long" if expired else "what it does is too large"
            recorder.channel.send("dropped", [name, why])
        else:
            recorder.channel.send("call", data.decode("ascii"))


def _bind(one: dict[str, Any], module: ModuleType, qualname: str, function: Function) -> Function:
    *path, name = qualname.split(".")
    owner: Any = functools.reduce(getattr, path, module)
    held = inspect.getattr_static(owner, name)
    if not path or isinstance(held, staticmethod):
        return function
    holder = owner if isinstance(held, classmethod) else build(one["self"])
    return function.__get__(holder)  # type: ignore[no-any-return] # a function binds


def _observe(
    recorder: Recorder, name: str, function: Function, args: list[object], kwargs: dict[str, Any]
) -> Invocation:
    with recorder.untraced():
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            # Imported only where it is needed: it takes as long as everything else here.
            return cast(
                "Invocation",
                importlib.import_module("asyncio").run(
                    observe_async(name, function, *args, bound=_MAX_VALUES, **kwargs)
                ),
            )
        return observe(name, function, *args, bound=_MAX_VALUES, **kwargs)


# --- building values


class Unbuildable(Exception):
    """A value can't be built; the message says why."""


def build(plain: Any) -> object:  # noqa: ANN401 - JSON, of a form that is checked as it is read
    """Build the value that `[kind, text, parts]` describes. Raises `Unbuildable`."""
    try:
        kind, text, parts = plain
        return _BUILDERS[kind](text, [build(one) for one in parts])
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise Unbuildable(f"{type(error).__name__}: {error}") from None


def _as_dict(parts: list[object]) -> dict[object, object]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _find_class(label: str) -> Any:  # noqa: ANN401 - any class
    parts = label.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        return functools.reduce(getattr, parts[cut:], module)
    raise Unbuildable(f"there is no {label}")


def _instance(label: str, parts: list[object]) -> object:
    """Build an instance with that state, without calling its `__init__`."""
    made = object.__new__(_find_class(label))
    for name, value in _as_dict(parts).items():
        object.__setattr__(made, cast("str", name), value)
    return made


def _named(text: str, _: list[object]) -> object:
    """Build a member of an enum, or a value from its text: the class comes before the bar."""
    label, name = text.split("|", 1)
    known = _FROM_TEXT.get(label)
    return known(name) if known else cast("type[enum.Enum]", _find_class(label))[name]


_FROM_TEXT: dict[str, Callable[[str], object]] = {
    "decimal.Decimal": decimal.Decimal,
    "pathlib.PurePosixPath": pathlib.PurePosixPath,
    "pathlib.PosixPath": pathlib.PosixPath,
}
_CONSTRUCTORS: dict[str, Callable[..., object]] = {
    "fractions.Fraction": fractions.Fraction,
    "datetime.date": dt.date,
    "datetime.datetime": dt.datetime,
    "datetime.timedelta": dt.timedelta,
    "range": range,
}
_FACTORIES: dict[str, type] = {
    "list": list,
    "int": int,
    "dict": dict,
    "set": set,
    "str": str,
    "float": float,
}
_BUILDERS: dict[str, Callable[[str, list[Any]], object]] = {
    "none": lambda _, __: None,
    "bool": lambda text, _: text == "True",
    "int": lambda text, _: int(text, 16),
    "float": lambda text, _: float.fromhex(text),
    "str": lambda text, _: text,
    "bytes": lambda text, _: text.encode("latin-1"),
    "bytearray": lambda text, _: bytearray(text.encode("latin-1")),
    "complex": lambda _, parts: complex(*parts),
    "list": lambda _, parts: parts,
    "tuple": lambda _, parts: tuple(parts),
    "subtuple": lambda label, parts: tuple.__new__(_find_class(label), parts),
    "set": lambda _, parts: set(parts),
    "frozenset": lambda _, parts: frozenset(parts),
    "deque": lambda _, parts: deque(parts),
    "dict": lambda _, parts: _as_dict(parts),
    "Counter": lambda _, parts: Counter(_as_dict(parts)),
    "OrderedDict": lambda _, parts: OrderedDict(_as_dict(parts)),
    "defaultdict": lambda factory, parts: defaultdict(
        _FACTORIES[factory] if factory else None, _as_dict(parts)
    ),
    "instance": _instance,
    "enum": _named,
    "text": _named,
    "call": lambda label, parts: _CONSTRUCTORS[label](*parts),
}
