"""Describes values of the standard library by their type's own methods, never by a subclass's.

A value is described by its exact type, or by the nearest base that is known here, and by the state
that its classes add. A value that has no known base and can't be accounted for byte by byte
(sockets, frames, coroutines, extension types) raises `Unreadable`.

A lock is described by whether it is held, and how often; an open file by its name, its mode, its
position, and whether it is closed. Neither the content of a file nor the waiters of a lock count.
The names of directories don't count: a test opens its files in another directory each time. The
state of a thread, a socket or a coroutine can't be read from outside: the reason names its type, so
that the report can say where it is.
"""

import _socket
import _thread
import array
import collections
import datetime as dt
import decimal
import enum
import fractions
import functools
import gc
import io
import operator
import os
import pathlib
import re
import threading
import types
import uuid
import weakref
import zoneinfo
from _io import _IOBase as IOBase
from _random import Random
from collections.abc import Callable, Iterable
from typing import Any, cast

from abreast.jobs.candidates.values import code_types, numpy_pandas, torch_types
from abreast.jobs.candidates.values.object_layout import (
    Beyond,
    ByType,
    Unreadable,
    ValueDescription,
    base_of,
    fields_of,
    has_dict,
    instance_dict,
    is_accounted,
    is_one_of,
    is_plain_class,
    label_of,
    mro_of,
    namespace_of,
    own_state,
)
from abreast.jobs.candidates.values.snapshot import SnapshotNode

Describer = Callable[[Any], ValueDescription]


def describe(value: object) -> ValueDescription:
    """Describe a value. Raises `Unreadable`, with the reason, if its state can't be read."""
    cls = type(value)
    if cls not in KNOWN:
        description = numpy_pandas.describe(value) or torch_types.describe(value)
        if description is not None:
            return description
        if issubclass(cls, type):
            return code_types.describe_class(cast("type", value))
        if any(one is enum.Enum for one in mro_of(cls)):
            return _enum(value)
    root = _root(cls)
    description = KNOWN.get(root)(value)  # type: ignore[misc] # the root is a known type
    if description.kind != "named" and (root is not cls or has_dict(cls)):
        known = {name for name, _ in description.state}
        description.state = description.state + [
            (name if name not in known else f"__dict__.{name}", held)
            for name, held in own_state(value, root)
        ]
    if root is object and _is_frozen(cls):
        description.identity = False
    return description


def _root(cls: type) -> type:
    """Return the nearest known base; every class on the way must add only readable state."""
    at = cls
    while at not in KNOWN:
        if not is_accounted(at):
            raise Unreadable(f"the state of {label_of(at)} can't be read")
        at = cast("type", base_of(at))
    if at is not cls and is_one_of(at, *_NO_SUBCLASSES):
        raise Unreadable(f"a subclass of {label_of(at)} may keep anything behind its methods")
    return at


def _is_frozen(cls: type) -> bool:
    """Whether a class is a frozen dataclass: sharing an instance can't be told from a copy."""
    all_params = (namespace_of(one).get("__dataclass_params__") for one in mro_of(cls))
    params = next((params for params in all_params if params is not None), None)
    return type(params) is type(_SAMPLE_PARAMS) and cast("Any", params).frozen is True


# The type of `__dataclass_params__` has no public name.
_SAMPLE_PARAMS = cast("Any", Beyond).__dataclass_params__


def is_iterator(cls: type) -> bool:
    """Whether values of a type are consumed: generators and C iterators, except files."""
    if cls is types.GeneratorType:
        return True
    if is_plain_class(cls) or issubclass(cls, IOBase) or is_one_of(cls, *weakref.ProxyTypes):
        return False
    method = next(
        (namespace_of(one)["__next__"] for one in mro_of(cls) if "__next__" in namespace_of(one)),
        None,
    )
    return type(method) is types.WrapperDescriptorType


def is_pending(cls: type) -> bool:
    """Whether values of a type need an event loop to run, so that their content isn't known."""
    return any(is_one_of(one, types.AsyncGeneratorType, types.CoroutineType) for one in mro_of(cls))


def label(cls: type) -> str:
    """Return the name of a type; a type that uses the name of a known one is called false."""
    if (known := LABELS.get(cls)) is not None:
        return known
    name = label_of(cls)
    return f"a false {name}" if is_plain_class(cls) and name in _RESERVED_NAMES else name


# --- atoms


def _text(value: str) -> SnapshotNode:
    value = str.__str__(value)
    if value.isascii() or not _SURROGATES.search(value):
        return SnapshotNode("str", "str", value)
    # JSON would turn two surrogates that form a pair into one character, which differs from them.
    return SnapshotNode(
        "surrogates", "str", value.encode("utf-8", "surrogatepass").decode("latin-1")
    )


_SURROGATES = re.compile("[\ud800-\udfff]")
_ATOM_NODES: dict[type, Callable[[Any], SnapshotNode]] = {
    type(None): lambda _: SnapshotNode("none", "NoneType"),
    bool: lambda value: SnapshotNode("bool", "bool", "True" if value else "False"),
    int: lambda value: SnapshotNode("int", "int", f"{value:x}"),
    float: lambda value: SnapshotNode("float", "float", value.hex()),
    str: _text,
    bytes: lambda value: SnapshotNode("bytes", "bytes", value.decode("latin-1")),
    type(...): lambda _: SnapshotNode("atom", "ellipsis"),
    type(NotImplemented): lambda _: SnapshotNode("atom", "NotImplementedType"),
}
ATOMS = ByType(_ATOM_NODES)


def _subclass_of_atom(kind: type, read: Callable[[Any], object]) -> Describer:
    def description(value: object) -> ValueDescription:
        node = _ATOM_NODES[kind](read(value))
        return ValueDescription(node.kind, node.value)

    return description


def _complex(value: complex) -> ValueDescription:
    plain = complex.__complex__(value)
    return ValueDescription("complex", items=(plain.real, plain.imag))


def _decimal(value: decimal.Decimal) -> ValueDescription:
    sign, digits, exponent = decimal.Decimal.as_tuple(value)
    return ValueDescription("atom", f"{'-' if sign else ''}{''.join(map(str, digits))}E{exponent}")


# --- containers


def _items(kind: str, read: Callable[[Any], Iterable[object]], *, identity: bool) -> Describer:
    return lambda value: ValueDescription(kind, items=tuple(read(value)), identity=identity)


def _dict(value: dict[object, object]) -> ValueDescription:
    return ValueDescription(
        "map", items=[part for pair in dict.items(value) for part in pair], identity=True
    )


def _default_dict(value: collections.defaultdict[object, object]) -> ValueDescription:
    description = _dict(value)
    description.state += fields_of(collections.defaultdict, "default_factory")(value).state
    return description


def _ordered_dict(value: collections.OrderedDict[object, object]) -> ValueDescription:
    """Describe an OrderedDict; reading its order hashes the keys, which is safe for plain ones."""
    held = dict(zip(map(id, dict.keys(value)), dict.items(value), strict=True))
    if not all(_is_plain(key) for key, _ in held.values()):
        raise Unreadable("an OrderedDict with keys that hash by a method of their own")
    order = (held[id(key)] for key in collections.OrderedDict.__iter__(value))
    return ValueDescription(
        "map", "ordered", items=[part for pair in order for part in pair], identity=True
    )


def _is_plain(key: object) -> bool:
    return type(key) in ATOMS or (
        type(key) is tuple and all(map(_is_plain, cast("tuple[object, ...]", key)))
    )


def _deque(value: collections.deque[object]) -> ValueDescription:
    items = tuple(collections.deque.__iter__(value))
    return ValueDescription(
        "items",
        items=items,
        state=fields_of(collections.deque, "maxlen")(value).state,
        identity=True,
    )


def _view(name: str) -> Describer:
    return lambda value: ValueDescription("object", state=[(name, gc.get_referents(value)[0])])


# --- blocks of bytes and numbers


def _array(value: "array.array[Any]") -> ValueDescription:
    state = fields_of(array.array, "typecode")(value).state
    code = cast("str", state[0][1])
    form = f"@{code}" if code not in "uw" else f"{array.array(code).itemsize}s"
    data = array.array.tobytes(value).decode("latin-1")
    return ValueDescription(f"block:{form}", data, state=state, identity=True)


def _memoryview(value: memoryview) -> ValueDescription:
    try:
        data, form = value.tobytes().decode("latin-1"), value.format
    except ValueError as error:
        raise Unreadable(str(error)) from None
    read = f"@{form}" if form in ("f", "d") else f"{value.itemsize}s"
    state = [
        ("format", form),
        ("shape", value.shape),
        ("readonly", value.readonly),
        ("<of>", value.obj),
    ]
    return ValueDescription(f"block:{read}", data, state=cast("list[tuple[str, object]]", state))


# --- values with named parts


def _zone(value: zoneinfo.ZoneInfo) -> ValueDescription:
    if value.key is None:
        raise Unreadable("a time zone from a file, without a name")
    return ValueDescription("atom", value.key)


def _reduced(read: Callable[[Any], Any]) -> Describer:
    """Describe a value by the `__reduce__` of its C type, its tuples flattened."""
    return lambda value: ValueDescription(
        "object",
        items=[
            one
            for part in read(value)
            for one in (cast("tuple[object, ...]", part) if type(part) is tuple else (part,))
        ],
    )


def _stream(read: Callable[[Any], object], *names: str) -> Describer:
    def description(value: object) -> ValueDescription:
        try:
            held = cast("tuple[object, ...]", read(value))
        except ValueError:
            return ValueDescription("object", state=[("closed", True)], identity=True)
        return ValueDescription("object", state=list(zip(names, held, strict=False)), identity=True)

    return description


def _weak_reference(value: weakref.ref[Any]) -> ValueDescription:
    return ValueDescription(
        "object",
        state=[
            ("<to>", weakref.ref.__call__(value)),
            *fields_of(weakref.ref, "__callback__")(value).state,
        ],
    )


def _enum(value: object) -> ValueDescription:
    held = {key: part for key, part in instance_dict(value) if type(key) is str}
    name = held.get("_name_")
    for ignored in ("_name_", "__objclass__", "_sort_order_", "_inverted_"):
        held.pop(ignored, None)
    return ValueDescription("enum", name if type(name) is str else None, state=sorted(held.items()))


def _raise_unreadable(value: Beyond) -> ValueDescription:
    raise Unreadable(value.reason)


def _no_content(_: object) -> ValueDescription:
    return ValueDescription("object", identity=True)


# --- locks, open files and what is refused


_RLOCK_COUNT = re.compile(r"count=(\d+)")


def _reentrant(value: Any) -> ValueDescription:  # noqa: ANN401 - the C type has no name in typing
    """Describe an RLock; most versions of Python show its count only in its `repr`."""
    if (found := _RLOCK_COUNT.search(_thread.RLock.__repr__(value))) is None:
        raise Unreadable("a lock that doesn't tell how often it is held")
    return ValueDescription("object", state=[("held", int(found[1]))], identity=True)


def _file(value: Any) -> ValueDescription:  # noqa: ANN401 - six C types without a common base
    """Describe an open file, if it and its layers are of the standard library.

    Reading the attributes of other streams could run any code.
    """
    held = value
    while type(held) is not io.FileIO:
        if not is_one_of(type(held), *_LAYERS):
            raise Unreadable("a stream that is no file of the system can't be compared")
        held = held.raw if type(held) is not io.TextIOWrapper else held.buffer
    name = os.fsdecode(held.name) if type(held.name) is bytes else held.name
    # The number of a descriptor doesn't count.
    last = os.path.basename(name) if type(name) is str else "a descriptor"  # noqa: PTH119 - a str
    state: list[tuple[str, object]] = [
        ("name", last),
        ("mode", held.mode),
        ("closed", held.closed),
    ]
    if not held.closed:
        try:
            state.append(("position", value.tell()))
        except (OSError, ValueError):
            raise Unreadable("the position in an open file can't be read") from None
    return ValueDescription("object", state=state, identity=True)


_LAYERS = (io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom)


def _refuse(what: str) -> Describer:
    def refuse(_: object) -> ValueDescription:
        raise Unreadable(f"{what} can't be compared")

    return refuse


_RESOURCES: dict[type, Describer] = {
    _thread.LockType: lambda value: ValueDescription(
        "object", state=[("locked", _thread.LockType.locked(value))], identity=True
    ),
    _thread.RLock: _reentrant,
    **dict.fromkeys((*_LAYERS, io.FileIO), _file),
    threading.Thread: _refuse("a thread"),
    _thread._local: _refuse("what each thread has of its own"),  # noqa: SLF001 - the C type of `threading.local`
    _socket.socket: _refuse("a socket"),
    types.CoroutineType: _refuse("a coroutine"),
    types.AsyncGeneratorType: _refuse("an async generator"),
    types.FrameType: _refuse("a frame"),
}

_PATHS = (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)
_DATE_FIELDS = ("year", "month", "day")
_TIME_FIELDS = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")


def _date_and_time(value: dt.datetime) -> ValueDescription:
    date = fields_of(dt.date, *_DATE_FIELDS)(value)
    date.state += fields_of(dt.datetime, *_TIME_FIELDS)(value).state
    return date


_DESCRIBERS: dict[type, Describer] = {
    object: _no_content,
    Beyond: _raise_unreadable,
    int: _subclass_of_atom(int, int.__int__),
    float: _subclass_of_atom(float, float.__float__),
    str: _subclass_of_atom(str, str.__str__),
    bytes: _subclass_of_atom(bytes, lambda value: bytes.__getitem__(value, slice(None))),
    complex: _complex,
    decimal.Decimal: _decimal,
    fractions.Fraction: fields_of(fractions.Fraction, "_numerator", "_denominator"),
    uuid.UUID: fields_of(uuid.UUID, "int", "is_safe"),
    list: _items("items", list.__iter__, identity=True),
    tuple: _items("items", tuple.__iter__, identity=False),
    set: _items("set", set.__iter__, identity=True),
    frozenset: _items("set", frozenset.__iter__, identity=False),
    dict: _dict,
    collections.defaultdict: _default_dict,
    collections.OrderedDict: _ordered_dict,
    collections.deque: _deque,
    types.MappingProxyType: _view("<of>"),
    type({}.keys()): _view("<of>"),
    type({}.values()): _view("<of>"),
    type({}.items()): _view("<of>"),
    bytearray: lambda value: ValueDescription(
        "bytes", bytearray.__getitem__(value, slice(None)).decode("latin-1"), identity=True
    ),
    array.array: _array,
    memoryview: _memoryview,
    range: fields_of(range, "start", "stop", "step"),
    slice: fields_of(slice, "start", "stop", "step"),
    dt.timedelta: fields_of(dt.timedelta, "days", "seconds", "microseconds"),
    dt.date: fields_of(dt.date, *_DATE_FIELDS),
    dt.time: fields_of(dt.time, *_TIME_FIELDS),
    dt.datetime: _date_and_time,
    dt.timezone: lambda value: ValueDescription(
        "object",
        items=dt.timezone.__getinitargs__(value),  # type: ignore[attr-defined] # not in typeshed
    ),
    dt.tzinfo: _no_content,
    zoneinfo.ZoneInfo: _zone,
    **dict.fromkeys(_PATHS, lambda value: ValueDescription("atom", str(value))),
    re.Pattern: fields_of(re.Pattern, "pattern", "flags"),
    re.Match: fields_of(re.Match, "re", "string", "pos", "endpos", "regs"),
    io.StringIO: _stream(io.StringIO.__getstate__, "value", "newline", "position"),
    io.BytesIO: _stream(io.BytesIO.__getstate__, "value", "position"),
    operator.itemgetter: _reduced(operator.itemgetter.__reduce__),
    operator.attrgetter: _reduced(operator.attrgetter.__reduce__),
    operator.methodcaller: _reduced(operator.methodcaller.__reduce__),
    Random: lambda value: ValueDescription("object", items=Random.getstate(value), identity=True),
    weakref.ref: _weak_reference,
    types.SimpleNamespace: _no_content,
    functools.partial: fields_of(functools.partial, "func", "args", "keywords", identity=True),
    **code_types.KNOWN,
    **_RESOURCES,
}
KNOWN = ByType(_DESCRIBERS)
_NAMES = {
    cls: label_of(cls).removeprefix("builtins.")
    for cls in [*_ATOM_NODES, *_DESCRIBERS, types.GeneratorType]
    if cls not in _RESOURCES
}
LABELS = ByType(_NAMES)
_RESERVED_NAMES = frozenset(_NAMES.values()) | {f"builtins.{name}" for name in _NAMES.values()}
_NO_SUBCLASSES = (*_PATHS, weakref.ref, zoneinfo.ZoneInfo, types.GenericAlias)
