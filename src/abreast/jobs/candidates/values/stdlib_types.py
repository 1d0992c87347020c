"""How each type of the standard library is read: by the type's own methods, never by a subclass's.

A value is described by what its exact type, or the nearest base that is known here, says of it, and
by the state that its classes add. What is no one's subclass here and can't be accounted for byte by
byte (sockets, frames, coroutines, extension types) raises `Unreadable`.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import gc
import io
import operator
import pathlib
import re
import types
import uuid
import weakref
import zoneinfo
from _io import _IOBase as IOBase
from _random import Random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from abreast.jobs.candidates.values import code_types as codes
from abreast.jobs.candidates.values import numpy_pandas as foreign
from abreast.jobs.candidates.values import resources
from abreast.jobs.candidates.values.object_layout import (
    Beyond,
    ByType,
    Sketch,
    Unreadable,
    base_of,
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

Describer = Callable[[Any], Sketch]


def describe(value: object) -> Sketch:
    """What a value is made of. Raises `Unreadable`, with the reason, if that can't be known."""
    cls = type(value)
    if cls not in KNOWN:
        sketch = foreign.describe(value)
        if sketch is not None:
            return sketch
        if issubclass(cls, type):
            return codes.describe_class(cast("type", value))
        if any(one is enum.Enum for one in mro_of(cls)):
            return _enum(value)
    root = _root(cls)
    sketch = KNOWN.get(root)(value)  # type: ignore[misc] # that is what makes it the root
    if sketch.kind != "named" and (root is not cls or has_dict(cls)):
        sketch.state = [*sketch.state, *_fresh(sketch.state, own_state(value, root))]
    if root is object and _is_frozen(cls):
        sketch.identity = False
    return sketch


def _root(cls: type) -> type:
    """The nearest base that is known; every class on the way must add only what can be read."""
    at = cls
    while at not in KNOWN:
        if not is_accounted(at):
            raise Unreadable(f"the state of {label_of(at)} can't be read")
        at = cast("type", base_of(at))
    if at is not cls and is_one_of(at, *_FINAL):
        raise Unreadable(f"a subclass of {label_of(at)} may keep anything behind its methods")
    return at


def _fresh(
    known: list[tuple[str, object]], more: list[tuple[str, object]]
) -> list[tuple[str, object]]:
    taken = {name for name, _ in known}
    return [(name if name not in taken else f"__dict__.{name}", value) for name, value in more]


def _is_frozen(cls: type) -> bool:
    """Whether instances can't change, so that nobody can tell two that are alike from one that is shared."""
    marks = (namespace_of(one).get("__dataclass_params__") for one in mro_of(cls))
    mark = next((mark for mark in marks if mark is not None), None)
    return type(mark) is _PARAMS and cast("Any", mark).frozen is True


class _Asked:
    """To see what a dataclass notes of itself."""


_PARAMS = type(cast("Any", dataclasses.dataclass(_Asked)).__dataclass_params__)


def is_iterator(cls: type) -> bool:
    """Whether values of a type are consumed: generators and the iterators of C, files and the like apart."""
    if cls is types.GeneratorType:
        return True
    if is_plain_class(cls) or issubclass(cls, IOBase) or is_one_of(cls, *weakref.ProxyTypes):
        return False
    method = next(
        (namespace_of(one)["__next__"] for one in mro_of(cls) if "__next__" in namespace_of(one)),
        None,
    )
    return type(method) is types.WrapperDescriptorType


def label(cls: type) -> str:
    """The name of a type, which no other type can take: one that claims to be known here is called false."""
    known = LABELS.get(cls)
    if known is not None:
        return known
    name = label_of(cls)
    return f"a false {name}" if is_plain_class(cls) and name in _TAKEN else name


# --- atoms


def _text(value: str) -> SnapshotNode:
    value = str.__str__(value)
    if value.isascii() or not _SURROGATES.search(value):
        return SnapshotNode("str", "str", value)
    # Two halves of a pair would come out of JSON as the one character that they are not.
    return SnapshotNode(
        "surrogates", "str", value.encode("utf-8", "surrogatepass").decode("latin-1")
    )


_SURROGATES = re.compile("[\ud800-\udfff]")
_ATOMS: dict[type, Callable[[Any], SnapshotNode]] = {
    type(None): lambda _: SnapshotNode("none", "NoneType"),
    bool: lambda value: SnapshotNode("bool", "bool", "True" if value else "False"),
    int: lambda value: SnapshotNode("int", "int", f"{value:x}"),
    float: lambda value: SnapshotNode("float", "float", value.hex()),
    str: _text,
    bytes: lambda value: SnapshotNode("bytes", "bytes", value.decode("latin-1")),
    type(...): lambda _: SnapshotNode("atom", "ellipsis"),
    type(NotImplemented): lambda _: SnapshotNode("atom", "NotImplementedType"),
}
QUICK = ByType(_ATOMS)


def _as(kind: type, read: Callable[[Any], object]) -> Describer:
    """A subclass of something quick: what it is beneath."""

    def sketch(value: object) -> Sketch:
        node = _ATOMS[kind](read(value))
        return Sketch(node.kind, node.value)

    return sketch


def _complex(value: complex) -> Sketch:
    plain = complex.__complex__(value)
    return Sketch("complex", items=(plain.real, plain.imag))


def _decimal(value: decimal.Decimal) -> Sketch:
    sign, digits, exponent = decimal.Decimal.as_tuple(value)
    return Sketch("atom", f"{'-' if sign else ''}{''.join(map(str, digits))}E{exponent}")


# --- containers


def _items(kind: str, read: Callable[[Any], Iterable[object]], *, identity: bool) -> Describer:
    return lambda value: Sketch(kind, items=tuple(read(value)), identity=identity)


def _map(value: dict[object, object]) -> Sketch:
    flat = [part for pair in dict.items(value) for part in pair]
    return Sketch("map", items=flat, identity=True)


def _default(value: collections.defaultdict[object, object]) -> Sketch:
    sketch = _map(value)
    factory = namespace_of(collections.defaultdict)["default_factory"]
    sketch.state.append(
        ("default_factory", cast("types.MemberDescriptorType", factory).__get__(value))
    )
    return sketch


def _ordered(value: collections.OrderedDict[object, object]) -> Sketch:
    """Its own order can only be had by hashing the keys, which is safe for plain ones."""
    held = dict(zip(map(id, dict.keys(value)), dict.items(value), strict=True))
    if not all(_is_plain(key) for key, _ in held.values()):
        raise Unreadable("an OrderedDict with keys that hash by a method of their own")
    order = (held[id(key)] for key in collections.OrderedDict.__iter__(value))
    return Sketch("map", "ordered", items=[part for pair in order for part in pair], identity=True)


def _is_plain(key: object) -> bool:
    return type(key) in QUICK or (
        type(key) is tuple and all(map(_is_plain, cast("tuple[object, ...]", key)))
    )


def _deque(value: collections.deque[object]) -> Sketch:
    maxlen = namespace_of(collections.deque)["maxlen"]
    items = tuple(collections.deque.__iter__(value))
    limit = cast("types.GetSetDescriptorType", maxlen).__get__(value)
    return Sketch("items", items=items, state=[("maxlen", limit)], identity=True)


def _wraps(name: str) -> Describer:
    """A view or proxy: it shows what it was made of."""
    return lambda value: Sketch("object", state=[(name, gc.get_referents(value)[0])])


# --- bytes and numbers in a row


def _bytearray(value: bytearray) -> Sketch:
    return Sketch(
        "bytes", bytearray.__getitem__(value, slice(None)).decode("latin-1"), identity=True
    )


def _array(value: array.array[Any]) -> Sketch:
    code = cast("types.GetSetDescriptorType", namespace_of(array.array)["typecode"]).__get__(value)
    data = array.array.tobytes(value).decode("latin-1")
    form = f"@{code}" if code not in "uw" else f"{array.array(code).itemsize}s"
    return Sketch(f"block:{form}", data, state=[("typecode", code)], identity=True)


def _memoryview(value: memoryview) -> Sketch:
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
    return Sketch(f"block:{read}", data, state=cast("list[tuple[str, object]]", state))


# --- things with named parts


def _fields(owner: type, *names: str, kind: str = "object", identity: bool = False) -> Describer:
    """Read by the descriptors of the type that made them, whatever a subclass put in their place."""
    getters = [
        (name, cast("types.MemberDescriptorType", namespace_of(owner)[name]).__get__)
        for name in names
    ]
    return lambda value: Sketch(
        kind, state=[(name, get(value)) for name, get in getters], identity=identity
    )


def _path(value: pathlib.PurePath) -> Sketch:
    return Sketch("atom", str(value))


def _zone(value: zoneinfo.ZoneInfo) -> Sketch:
    if value.key is None:
        raise Unreadable("a time zone from a file, without a name")
    return Sketch("atom", value.key)


def _timezone(value: dt.timezone) -> Sketch:
    return Sketch("object", items=dt.timezone.__getinitargs__(value))  # type: ignore[attr-defined] # of C


def _reduced(read: Callable[[Any], Any]) -> Describer:
    """A type of C that says how it would be made again; asked in its own voice."""
    return lambda value: Sketch("object", items=_flat(read(value)))


def _flat(parts: Iterable[object]) -> Iterator[object]:
    for part in parts:
        if type(part) is tuple:
            yield from part
        else:
            yield part


def _stream(read: Callable[[Any], object], *names: str) -> Describer:
    def sketch(value: object) -> Sketch:
        try:
            held = cast("tuple[object, ...]", read(value))
        except ValueError:
            return Sketch("object", state=[("closed", True)], identity=True)
        return Sketch("object", state=list(zip(names, held, strict=False)), identity=True)

    return sketch


def _reference(value: weakref.ref[Any]) -> Sketch:
    callback = cast(
        "types.GetSetDescriptorType", namespace_of(weakref.ref)["__callback__"]
    ).__get__(value)
    return Sketch(
        "object", state=[("<to>", weakref.ref.__call__(value)), ("__callback__", callback)]
    )


def _enum(value: object) -> Sketch:
    held = {key: part for key, part in instance_dict(value) if type(key) is str}
    name = held.get("_name_")
    state = [(key, part) for key, part in held.items() if key not in _ENUM_PARTS]
    return Sketch("enum", name if type(name) is str else None, state=sorted(state))


_ENUM_PARTS = frozenset({"_name_", "__objclass__", "_sort_order_", "_inverted_"})


def _beyond(value: Beyond) -> Sketch:
    raise Unreadable(value.reason)


def _bare(_: object) -> Sketch:
    return Sketch("object", identity=True)


_PATHS = (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)
_CALENDAR = ("year", "month", "day")
_CLOCK = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")


def _date_and_time(value: dt.datetime) -> Sketch:
    date = _fields(dt.date, *_CALENDAR)(value)
    return Sketch("object", state=[*date.state, *_fields(dt.datetime, *_CLOCK)(value).state])


_DESCRIBERS: dict[type, Describer] = {
    object: _bare,
    Beyond: _beyond,
    int: _as(int, int.__int__),
    float: _as(float, float.__float__),
    str: _as(str, str.__str__),
    bytes: _as(bytes, lambda value: bytes.__getitem__(value, slice(None))),
    complex: _complex,
    decimal.Decimal: _decimal,
    fractions.Fraction: _fields(fractions.Fraction, "_numerator", "_denominator"),
    uuid.UUID: _fields(uuid.UUID, "int", "is_safe"),
    list: _items("items", list.__iter__, identity=True),
    tuple: _items("items", tuple.__iter__, identity=False),
    set: _items("set", set.__iter__, identity=True),
    frozenset: _items("set", frozenset.__iter__, identity=False),
    dict: _map,
    collections.defaultdict: _default,
    collections.OrderedDict: _ordered,
    collections.deque: _deque,
    types.MappingProxyType: _wraps("<of>"),
    type({}.keys()): _wraps("<of>"),
    type({}.values()): _wraps("<of>"),
    type({}.items()): _wraps("<of>"),
    bytearray: _bytearray,
    array.array: _array,
    memoryview: _memoryview,
    range: _fields(range, "start", "stop", "step"),
    slice: _fields(slice, "start", "stop", "step"),
    dt.timedelta: _fields(dt.timedelta, "days", "seconds", "microseconds"),
    dt.date: _fields(dt.date, *_CALENDAR),
    dt.time: _fields(dt.time, *_CLOCK),
    dt.datetime: _date_and_time,
    dt.timezone: _timezone,
    dt.tzinfo: _bare,
    zoneinfo.ZoneInfo: _zone,
    **dict.fromkeys(_PATHS, _path),
    re.Pattern: _fields(re.Pattern, "pattern", "flags"),
    re.Match: _fields(re.Match, "re", "string", "pos", "endpos", "regs"),
    io.StringIO: _stream(io.StringIO.__getstate__, "value", "newline", "position"),
    io.BytesIO: _stream(io.BytesIO.__getstate__, "value", "position"),
    operator.itemgetter: _reduced(operator.itemgetter.__reduce__),
    operator.attrgetter: _reduced(operator.attrgetter.__reduce__),
    operator.methodcaller: _reduced(operator.methodcaller.__reduce__),
    Random: lambda value: Sketch("object", items=Random.getstate(value), identity=True),
    weakref.ref: _reference,
    types.SimpleNamespace: _bare,
    functools.partial: _fields(functools.partial, "func", "args", "keywords", identity=True),
    **codes.KNOWN,
    **resources.KNOWN,
}
KNOWN = ByType(_DESCRIBERS)
_NAMED = [cls for cls in [*_ATOMS, *_DESCRIBERS, types.GeneratorType] if cls not in resources.KNOWN]
_NAMES = {cls: label_of(cls).removeprefix("builtins.") for cls in _NAMED}
LABELS = ByType(_NAMES)
_TAKEN = frozenset(_NAMES.values()) | {f"builtins.{name}" for name in _NAMES.values()}
_FINAL = (*_PATHS, weakref.ref, zoneinfo.ZoneInfo, types.GenericAlias)
