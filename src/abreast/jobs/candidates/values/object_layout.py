"""Reads the state of an object from the interpreter's own records, which no class can falsify.

Nothing here calls the object: not its `__class__`, `__dict__`, `__getattribute__`, `__eq__`,
`__hash__`, `__reduce__` or `__len__`, nor a metaclass. Only descriptors that the interpreter made
are used. Every byte of an instance must be accounted for: a class that adds state which can't be
read (an extension type, a slot whose descriptor was deleted, a hidden `__dict__`) is found by its
size, and its instances can't be compared.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Generic, TypeVar, cast

base_of: Callable[[type], type | None] = type.__dict__["__base__"].__get__
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
namespace_of: Callable[[type], MappingProxyType[str, object]] = type.__dict__["__dict__"].__get__
_qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_module: Callable[[type], object] = type.__dict__["__module__"].__get__
_flags: Callable[[type], int] = type.__dict__["__flags__"].__get__
_basic_size: Callable[[type], int] = type.__dict__["__basicsize__"].__get__
_item_size: Callable[[type], int] = type.__dict__["__itemsize__"].__get__
_dict_offset: Callable[[type], int] = type.__dict__["__dictoffset__"].__get__
_weakref_offset: Callable[[type], int] = type.__dict__["__weakrefoffset__"].__get__

_POINTER_SIZE = 8  # bytes
# Bits of `__flags__`.
_MANAGED_WEAKREF, _MANAGED_DICT, _IMMUTABLE, _HEAP = 1 << 3, 1 << 4, 1 << 8, 1 << 9
# Where Python 3.13 alone keeps classes that are found by another name.
_PUBLIC_MODULES = {"pathlib._local": "pathlib"}

T = TypeVar("T")


class ByType(Generic[T]):
    """A table by the identity of types.

    A dict would call `__hash__` and `__eq__` of the metaclass, which may return anything.
    """

    __slots__ = ("_values", "types")

    def __init__(self, values: Mapping[type, T]) -> None:
        """Take a mapping whose keys are types that user code can't have changed."""
        self.types = tuple(values)
        self._values = {id(cls): value for cls, value in values.items()}

    def get(self, cls: type) -> T | None:
        """Return the value of a type itself, not of its bases; None if it has none."""
        return self._values.get(id(cls))

    def __contains__(self, cls: type) -> bool:
        return id(cls) in self._values


def is_one_of(cls: type, *kinds: type) -> bool:
    """Whether a type is one of these, by identity."""
    return any(cls is kind for kind in kinds)


class Unreadable(Exception):
    """This value, or a part of it, can't be compared; the message says why."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """Takes the place of a part that can't be read, with the reason.

    Its module and name are in recorded snapshots, as the type of a node.
    """

    reason: str


@dataclass(slots=True)
class ValueDescription:
    """One value before its parts are read: `items` and `state` hold values, not yet nodes."""

    kind: str
    value: str | None = None
    items: Iterable[object] = ()
    state: list[tuple[str, object]] = field(default_factory=list)
    identity: bool = False
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Memory that arrays may share: it matters which arrays do. They hold its content."""

    of: object


def fields_of(
    owner: type, *names: str, identity: bool = False
) -> Callable[[object], ValueDescription]:
    """Describe a value by fields, read by the descriptors of `owner`, whatever a subclass has."""
    getters = [
        (name, cast("MemberDescriptorType", namespace_of(owner)[name]).__get__) for name in names
    ]
    return lambda value: ValueDescription(
        "object", state=[(name, get(value)) for name, get in getters], identity=identity
    )


def label_of(cls: type) -> str:
    """Return `module.qualname` of a class, whatever its metaclass says."""
    module = module_of(cls) or "?"
    return f"{_PUBLIC_MODULES.get(module, module)}.{_qualname(cls)}"


def module_of(cls: type) -> str | None:
    """Return the name of the module that a class says it is from."""
    try:
        module = _module(cls)
    except AttributeError:  # deleted from its namespace
        return None
    return module if type(module) is str else None


def is_plain_class(cls: type) -> bool:
    """Whether a class was made by a `class` statement, or by calling its metaclass."""
    return bool(_flags(cls) & _HEAP) and not _flags(cls) & _IMMUTABLE


def is_local_class(cls: type) -> bool:
    """Whether a class can't be found by its name: it was made in a function, or is hidden."""
    return is_plain_class(cls) and find(module_of(cls), _qualname(cls)) is not cls


def find(module: object, qualname: str) -> object:
    """Return the object of that name in a loaded module; None if there is none."""
    if type(module) is not str or module not in sys.modules:
        return None
    found: object = sys.modules[module]
    for name in qualname.split("."):
        try:
            found = dict(_contents(found))[name]
        except (KeyError, Unreadable):
            return None
    return found


def _contents(holder: object) -> Iterable[tuple[str, object]]:
    """Return what a class or a module holds under names that are plain text."""
    held: Iterable[tuple[object, object]] = ()
    if issubclass(type(holder), type):
        held = namespace_of(cast("type", holder)).items()
    elif issubclass(type(holder), ModuleType):
        held = instance_dict(holder)
    return [(name, value) for name, value in held if type(name) is str]


def own_state(value: object, root: type) -> list[tuple[str, object]]:
    """Return the state that the classes between the value's own and `root` give it, by name.

    Raises `Unreadable`.
    """
    found: dict[str, object] = {}
    cls = type(value)
    while cls is not root:
        for name, member in _members(cls):
            with contextlib.suppress(AttributeError):  # never set
                held = member.__get__(value)
                found[name if name not in found else f"{label_of(cls)}.{name}"] = held
        cls = cast("type", base_of(cls))
    for key, held in instance_dict(value):
        if type(key) is not str:
            raise Unreadable("an attribute whose name is no plain text")
        found[key if key not in found else f"__dict__.{key}"] = held
    return sorted(found.items())


def is_accounted(cls: type) -> bool:
    """Whether a class adds only readable slots, a `__dict__` and weak references to its base."""
    base = base_of(cls)
    if base is None or not is_plain_class(cls) or _item_size(cls) != _item_size(base):
        return False
    pointers = len(_members(cls))
    for offset, managed in ((_dict_offset, _MANAGED_DICT), (_weakref_offset, _MANAGED_WEAKREF)):
        pointers += bool(offset(cls) and not offset(base) and not _flags(cls) & managed)
    return _basic_size(cls) - _basic_size(base) == _POINTER_SIZE * pointers


def _members(cls: type) -> list[tuple[str, MemberDescriptorType]]:
    """Return the slots of a class, each once: not aliases, nor descriptors of other classes."""
    return [
        (name, one)
        for name, one in namespace_of(cls).items()
        if type(one) is MemberDescriptorType and one.__objclass__ is cls and one.__name__ == name
    ]


def has_dict(cls: type) -> bool:
    """Whether instances of a class have a `__dict__`."""
    return bool(_dict_offset(cls))


def instance_dict(value: object) -> Sequence[tuple[object, object]]:
    """Return the `__dict__` of an instance, as pairs.

    Empty if it has none. Raises `Unreadable` if its class hides it.
    """
    cls = type(value)
    if not _dict_offset(cls):
        return ()
    for one in mro_of(cls):
        getter = namespace_of(one).get("__dict__")
        if is_one_of(type(getter), GetSetDescriptorType, MemberDescriptorType):
            return list(dict.items(cast("GetSetDescriptorType", getter).__get__(value)))
    raise Unreadable("its class hides its __dict__")
