"""Describes functions, classes, modules and exceptions, for snapshots.

A function is described by its code, its defaults, its closure, and the globals that its code names,
all by their content; the place of the source doesn't count. Functions of the standard library,
modules, and classes that can be found by their name are described by that name. A class that can't
be found (made inside of a function) is described by its bases and its namespace. Exceptions are
described by their content.
"""

import contextlib
import dis
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from abreast.jobs.candidates.values.object_layout import (
    Beyond,
    Unreadable,
    ValueDescription,
    fields_of,
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


def _function(value: types.FunctionType) -> ValueDescription:
    module, name = value.__module__, value.__qualname__
    standard = type(module) is str and module.partition(".")[0] in sys.stdlib_module_names
    if standard and module != "__main__" and find(module, name) is value:
        return ValueDescription("named", f"{module}.{name}")
    closure = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    known = dict.keys(value.__globals__)
    state: list[tuple[str, object]] = [
        ("__code__", value.__code__),
        ("__defaults__", value.__defaults__),
        ("__kwdefaults__", value.__kwdefaults__),
        ("__qualname__", name),
        *((f"<closure>.{free}", cell) for free, cell in closure),
        *(
            (f"<global>.{used}", dict.__getitem__(value.__globals__, used))
            for used in sorted(_global_names(value.__code__))
            if used in known
        ),
    ]
    return ValueDescription("function", state=state)


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


def _code(value: types.CodeType) -> ValueDescription:
    """Describe what a code object does: not its place in the source, nor its locals' names.

    Of the locals only their number counts.
    """
    parameters = (
        value.co_argcount
        + value.co_kwonlyargcount
        + bool(value.co_flags & 4)
        + bool(value.co_flags & 8)
    )
    state: list[tuple[str, object]] = [
        ("co_argcount", value.co_argcount),
        ("co_posonlyargcount", value.co_posonlyargcount),
        ("co_kwonlyargcount", value.co_kwonlyargcount),
        ("co_flags", value.co_flags),
        ("co_code", value.co_code),
        ("co_names", value.co_names),
        ("parameters", value.co_varnames[:parameters]),
        ("co_freevars", value.co_freevars),
        ("locals", len(value.co_varnames)),
        ("co_cellvars", value.co_cellvars),
        ("exceptions", value.co_exceptiontable),
    ]
    return ValueDescription("object", state=state, items=value.co_consts)


def _cell(value: types.CellType) -> ValueDescription:
    try:
        return ValueDescription("object", items=(value.cell_contents,), identity=True)
    except ValueError:  # empty: nothing was assigned yet
        return ValueDescription("object", identity=True)


def _builtin(value: types.BuiltinFunctionType) -> ValueDescription:
    owner = value.__self__
    if owner is None or type(owner) is types.ModuleType:
        return ValueDescription("named", f"{value.__module__}.{value.__name__}")
    return ValueDescription("object", value.__name__, state=[("__self__", owner)])


def _descriptor(value: Any) -> ValueDescription:  # noqa: ANN401 - five types without a common base
    return ValueDescription("object", value.__name__, state=[("__objclass__", value.__objclass__)])


def _module(value: types.ModuleType) -> ValueDescription:
    name = next(
        (held for key, held in instance_dict(value) if type(key) is str and key == "__name__"), None
    )
    if type(name) is not str:
        raise Unreadable("a module without a name")
    return ValueDescription("named", name)


def _alias(value: Any) -> ValueDescription:  # noqa: ANN401 - an alias or a union
    origin = value.__origin__ if type(value) is types.GenericAlias else None
    return ValueDescription("object", items=value.__args__, state=[("__origin__", origin)])


# --- classes


def describe_class(value: type) -> ValueDescription:
    """Describe a class by its name if it can be found by it, else by its bases and namespace."""
    name = label_of(value)
    if not is_local_class(value):
        return ValueDescription("class", name, label="type")
    held = namespace_of(value).items()
    if not all(type(key) is str for key, _ in held):
        raise Unreadable("a class with a name in it that is no plain text")
    space = {key: one for key, one in held if key not in _IGNORED_NAMES and not _is_slot(one)}
    slots = [key for key, one in held if type(one) is types.MemberDescriptorType]
    state: list[tuple[str, object]] = [("<slots>", slots), *sorted(space.items())]
    return ValueDescription("class", name, items=mro_of(value)[1:], state=state, label="type")


def _is_slot(value: object) -> bool:
    return is_one_of(type(value), types.MemberDescriptorType, types.GetSetDescriptorType)


_IGNORED_NAMES = frozenset(
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


def _exception(value: BaseException) -> ValueDescription:
    """Describe the arguments, the attributes of the C type, cause, context, notes and groups.

    The traceback doesn't count.
    """
    found: dict[str, object] = {}
    for cls in mro_of(type(value)):
        if is_plain_class(cls):
            continue
        for name, getter in namespace_of(cls).items():
            if name not in _IGNORED_ATTRIBUTES and _is_slot(getter):
                # Never set: `characters_written`, or the encoding of a UnicodeError.
                with contextlib.suppress(AttributeError, TypeError):
                    found.setdefault(
                        name, cast("types.GetSetDescriptorType", getter).__get__(value)
                    )
    if found["__suppress_context__"]:
        found["__context__"] = None
    found["<message>"] = _message(value, found["args"])
    return ValueDescription("exception", state=sorted(found.items()), identity=True)


def _message(value: BaseException, args: object) -> object:
    """Return what the exception's C type would print. A user-defined `__str__` is not called."""
    plain = (str, int, float, bytes, bool, type(None))
    if not all(is_one_of(type(one), *plain) for one in cast("tuple[object, ...]", args)):
        return Beyond("a message that is made of more than plain values")
    cls = next(one for one in mro_of(type(value)) if not is_plain_class(one))
    try:
        return cast("Callable[[object], str]", cls.__str__)(value)
    except Exception as error:  # noqa: BLE001 - the attributes can be of any type
        return Beyond(f"its message can't be read: {type(error).__name__}")


# `obj` is the object whose attribute was missing; the interpreter uses it for its spelling hint.
_IGNORED_ATTRIBUTES = frozenset(
    {"__traceback__", "__dict__", "__weakref__", "obj", "print_file_and_line"}
)


def _builtin_exceptions(cls: type) -> Iterator[type]:
    yield cls
    for one in cast("list[type]", type.__subclasses__(cls)):
        if not is_plain_class(one):
            yield from _builtin_exceptions(one)


KNOWN: dict[type, Callable[[Any], ValueDescription]] = {
    types.FunctionType: _function,
    types.CodeType: _code,
    types.CellType: _cell,
    types.MethodType: fields_of(types.MethodType, "__func__", "__self__"),
    types.BuiltinFunctionType: _builtin,
    types.MethodWrapperType: lambda value: ValueDescription(
        "object", value.__name__, state=[("__self__", value.__self__)]
    ),
    types.WrapperDescriptorType: _descriptor,
    types.MethodDescriptorType: _descriptor,
    types.ClassMethodDescriptorType: _descriptor,
    types.MemberDescriptorType: _descriptor,
    types.GetSetDescriptorType: _descriptor,
    types.ModuleType: _module,
    types.GenericAlias: _alias,
    types.UnionType: _alias,
    property: fields_of(property, "fget", "fset", "fdel"),
    staticmethod: fields_of(staticmethod, "__func__"),
    classmethod: fields_of(classmethod, "__func__"),
    **dict.fromkeys(_builtin_exceptions(BaseException), _exception),
}
