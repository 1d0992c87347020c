"""How what can be called, raised or imported is read: functions by code, exceptions by content, the rest by name.

A function is its code, its defaults, what it closes over, and the globals that its code names, all
by their content; the place of the source doesn't count. Functions of the standard library, modules,
and classes that can be found by their name are that name. A class that can't be found (made inside
of a function) is its bases and its namespace.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from abreast.jobs.candidates.values.object_layout import (
    Beyond,
    Sketch,
    Unreadable,
    find,
    instance_dict,
    is_local_class,
    is_one_of,
    is_plain_class,
    label_of,
    mro_of,
    namespace_of,
)

# --- functions


def _function(value: types.FunctionType) -> Sketch:
    module, name = value.__module__, value.__qualname__
    standard = type(module) is str and module.partition(".")[0] in sys.stdlib_module_names
    if standard and module != "__main__" and find(module, name) is value:
        return Sketch("named", f"{module}.{name}")
    cells = value.__closure__ or ()
    state: list[tuple[str, object]] = [
        ("__code__", value.__code__),
        ("__defaults__", value.__defaults__),
        ("__kwdefaults__", value.__kwdefaults__),
        ("__qualname__", name),
    ]
    state += [
        (f"<closure>.{name}", cell)
        for name, cell in zip(value.__code__.co_freevars, cells, strict=True)
    ]
    state += [(f"<global>.{name}", held) for name, held in _globals(value)]
    return Sketch("function", state=state)


def _globals(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    for name in sorted(_global_names(function.__code__)):
        held = dict.get(function.__globals__, name, _NOTHING)
        if held is not _NOTHING:
            yield name, held


_NOTHING = object()


def _global_names(code: types.CodeType) -> set[str]:
    found = {
        cast("str", one.argval)
        for one in dis.get_instructions(code)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for inner in code.co_consts:
        if type(inner) is types.CodeType:
            found |= _global_names(inner)
    return found


def _code(value: types.CodeType) -> Sketch:
    """What a code does; not where it was written, nor how its locals are called unless the count says otherwise."""
    state: list[tuple[str, object]] = [
        (name, getattr(value, name))
        for name in (
            "co_argcount",
            "co_posonlyargcount",
            "co_kwonlyargcount",
            "co_flags",
            "co_code",
            "co_names",
        )
    ]
    named = (
        value.co_argcount
        + value.co_kwonlyargcount
        + bool(value.co_flags & 4)
        + bool(value.co_flags & 8)
    )
    state += [("parameters", value.co_varnames[:named]), ("co_freevars", value.co_freevars)]
    state += [("locals", len(value.co_varnames)), ("co_cellvars", value.co_cellvars)]
    state += [("exceptions", getattr(value, "co_exceptiontable", b""))]
    return Sketch("object", state=state, items=value.co_consts)


def _cell(value: types.CellType) -> Sketch:
    try:
        return Sketch("object", items=(value.cell_contents,), identity=True)
    except ValueError:  # empty: nothing was assigned yet
        return Sketch("object", identity=True)


def _method(value: types.MethodType) -> Sketch:
    return Sketch("object", state=[("__func__", value.__func__), ("__self__", value.__self__)])


def _builtin(value: types.BuiltinFunctionType) -> Sketch:
    owner = value.__self__
    name = value.__name__
    if owner is None or type(owner) is types.ModuleType:
        return Sketch("named", f"{value.__module__}.{name}")
    return Sketch("object", name, state=[("__self__", owner)])


def _wrapper(value: types.MethodWrapperType) -> Sketch:
    return Sketch("object", value.__name__, state=[("__self__", value.__self__)])


def _descriptor(value: Any) -> Sketch:  # noqa: ANN401 - five types that have no common one
    return Sketch("object", value.__name__, state=[("__objclass__", value.__objclass__)])


def _fields(owner: type, *names: str) -> Callable[[Any], Sketch]:
    getters = [
        (name, cast("types.MemberDescriptorType", namespace_of(owner)[name]).__get__)
        for name in names
    ]
    return lambda value: Sketch("object", state=[(name, get(value)) for name, get in getters])


def _module(value: types.ModuleType) -> Sketch:
    name = next(
        (held for key, held in instance_dict(value) if type(key) is str and key == "__name__"), None
    )
    if type(name) is not str:
        raise Unreadable("a module without a name")
    return Sketch("named", name)


def _alias(value: Any) -> Sketch:  # noqa: ANN401 - an alias or a union
    origin = value.__origin__ if type(value) is types.GenericAlias else None
    return Sketch("object", items=value.__args__, state=[("__origin__", origin)])


# --- classes


def describe_class(value: type) -> Sketch:
    """A class: its name if it can be found under it, else what it is made of."""
    name = label_of(value)
    if not is_local_class(value):
        return Sketch("class", name, label="type")
    held = namespace_of(value).items()
    if not all(type(key) is str for key, _ in held):
        raise Unreadable("a class with a name in it that is no plain text")
    space = {key: one for key, one in held if key not in _NO_PART and not _is_slot(one)}
    slots = [key for key, one in held if type(one) is types.MemberDescriptorType]
    state: list[tuple[str, object]] = [("<slots>", slots), *sorted(space.items())]
    return Sketch("class", name, items=mro_of(value)[1:], state=state, label="type")


def _is_slot(value: object) -> bool:
    return is_one_of(type(value), types.MemberDescriptorType, types.GetSetDescriptorType)


_NO_PART = frozenset(
    {
        "__doc__",
        "__module__",
        "__dict__",
        "__weakref__",
        "_abc_impl",
        "__firstlineno__",
        "__static_attributes__",
    }
)


# --- exceptions


def _exception(value: BaseException) -> Sketch:
    """Type, arguments, the attributes that its type of C keeps, cause, context, notes and groups.

    Not the traceback.
    """
    found: dict[str, object] = {}
    for cls in mro_of(type(value)):
        if is_plain_class(cls):
            continue
        for name, getter in namespace_of(cls).items():
            if name not in _NOT_COMPARED and _is_slot(getter):
                _note(found, name, cast("types.GetSetDescriptorType", getter), value)
    if found["__suppress_context__"]:
        found["__context__"] = None
    found["<message>"] = _message(value, found["args"])
    return Sketch("exception", state=sorted(found.items()), identity=True)


def _message(value: BaseException, args: object) -> object:
    """What the exception's type of C would print. A `__str__` of somebody's own is not asked."""
    plain = (str, int, float, bytes, bool, type(None))
    if not all(is_one_of(type(one), *plain) for one in cast("tuple[object, ...]", args)):
        return Beyond("a message that is made of more than plain values")
    cls = next(one for one in mro_of(type(value)) if not is_plain_class(one))
    try:
        return cast("Callable[[object], str]", cls.__str__)(value)
    except Exception as error:  # noqa: BLE001 - attributes can be anything by now
        return Beyond(f"its message can't be read: {type(error).__name__}")


# `obj` is the interpreter's hint for a misspelt name: whatever object was asked.
_NOT_COMPARED = frozenset(
    {"__traceback__", "__dict__", "__weakref__", "obj", "print_file_and_line"}
)


def _note(
    found: dict[str, object], name: str, getter: types.GetSetDescriptorType, value: BaseException
) -> None:
    try:
        found.setdefault(name, getter.__get__(value))
    except (
        AttributeError,
        TypeError,
    ):  # never set: `characters_written`, or the encoding of a UnicodeError
        return


def _exceptions(cls: type) -> Iterator[type]:
    yield cls
    for one in cast("list[type]", type.__subclasses__(cls)):
        if not is_plain_class(one):
            yield from _exceptions(one)


KNOWN: dict[type, Callable[[Any], Sketch]] = {
    types.FunctionType: _function,
    types.CodeType: _code,
    types.CellType: _cell,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.MethodWrapperType: _wrapper,
    types.WrapperDescriptorType: _descriptor,
    types.MethodDescriptorType: _descriptor,
    types.ClassMethodDescriptorType: _descriptor,
    types.MemberDescriptorType: _descriptor,
    types.GetSetDescriptorType: _descriptor,
    types.ModuleType: _module,
    types.GenericAlias: _alias,
    types.UnionType: _alias,
    property: _fields(property, "fget", "fset", "fdel"),
    staticmethod: _fields(staticmethod, "__func__"),
    classmethod: _fields(classmethod, "__func__"),
    **dict.fromkeys(_exceptions(BaseException), _exception),
}
