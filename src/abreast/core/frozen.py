"""Records: dataclasses that are quickly defined, as every start pays for that, and quickly made, as every item does."""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as record

__all__ = ["record"]

T = TypeVar("T")


class _Factory:
    """Stands in a signature for a default that is made anew for every record."""

    def __repr__(self) -> str:
        """As dataclasses show theirs."""
        return "<factory>"


_MADE = _Factory()


def _record(*, frozen: bool = False, slots: bool = False) -> Callable[[type[T]], type[T]]:
    """A dataclass in every way but two: it is defined in a quarter of the time, and a frozen one is made in half of it.

    dataclasses compiles six functions for a frozen class, each apart: nearly a millisecond. Here
    only `__init__` is compiled; the others are the same for all classes, and are told their fields.
    And a frozen one sets its fields one by one through `object.__setattr__`: here it is for that
    moment of an open class with the same slots, whose fields are set as any other's, 0.46 us
    against 1.24 for nine fields.

        @record(frozen=True, slots=True)
        class Reply: ...
    """

    def decorate(cls: type[T]) -> type[T]:
        cls.__doc__ = (
            cls.__doc__ or cls.__name__
        )  # else dataclasses would make one of its signature, in 2 ms
        kind = dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
        parts: tuple[Field[object], ...] = fields(kind)  # type: ignore[arg-type] # it has become a dataclass
        if odd := [
            part.name for part in parts if part.kw_only or not part.init or part.hash is not None
        ]:
            raise TypeError(
                f"{cls.__name__}.{odd[0]}: kw_only, init and hash are for dataclasses; a record has none"
            )
        values = _values_of([part.name for part in parts if part.compare])
        methods: dict[str, object] = {
            "__repr__": _repr_of([part.name for part in parts if part.repr]),
            "__eq__": _equal_by(values),
            "__hash__": None,
        }
        if frozen:
            vars(kind)["__dataclass_params__"].frozen = True
            methods |= {
                "__hash__": lambda self: hash(values(self)),
                "__setattr__": _refuse,
                "__delattr__": _refuse,
            }
            if slots:  # else they are copied and pickled by assignment
                methods |= {"__getstate__": _state_of, "__setstate__": _restore}
        for name, method in methods.items():
            if name not in vars(cls):
                setattr(kind, name, method)
        setattr(kind, "__init__", _init_of(kind, parts, frozen=frozen))  # noqa: B010 - mypy would follow an assignment
        return kind

    return decorate


if not TYPE_CHECKING:  # checkers know what `dataclass` does, and that is what it does
    record = _record


def _init_of(kind: type, parts: tuple[Field[object], ...], *, frozen: bool) -> object:
    known: dict[str, object] = {"put": object.__setattr__, "Frozen": kind, "made": _MADE}
    lines = [f"def __init__(self, {', '.join(_parameter(part, known) for part in parts)}):", "pass"]
    if not frozen:
        lines += [f"self.{part.name} = {_value(part)}" for part in parts]
    elif vars(kind).get("__slots__") == tuple(part.name for part in parts):
        known["Open"] = _open_twin(kind)
        lines.append('put(self, "__class__", Open)')
        lines += [f"self.{part.name} = {_value(part)}" for part in parts]
        lines.append("self.__class__ = Frozen")
    else:
        lines += [f"put(self, {part.name!r}, {_value(part)})" for part in parts]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    exec("\n    ".join(lines), known)  # noqa: S102 - as dataclasses make theirs
    init = known["__init__"]
    init.__qualname__ = f"{kind.__qualname__}.__init__"  # type: ignore[attr-defined]
    init.__annotations__ = {part.name: part.type for part in parts} | {"return": None}
    return init


def _open_twin(kind: type) -> type:
    """A class with the same bases and slots, whose fields can be set."""
    alike = {
        name: vars(kind)[name] for name in ("__slots__", "__orig_bases__") if name in vars(kind)
    }
    return type(f"Open{kind.__name__}", kind.__bases__, alike)


def _parameter(part: Field[object], known: dict[str, object]) -> str:
    if part.default is not MISSING:
        known[f"default_{part.name}"] = part.default
        return f"{part.name}=default_{part.name}"
    if part.default_factory is not MISSING:
        known[f"make_{part.name}"] = part.default_factory
        return f"{part.name}=made"
    return part.name


def _value(part: Field[object]) -> str:
    if part.default_factory is MISSING:
        return part.name
    return f"make_{part.name}() if {part.name} is made else {part.name}"


def _values_of(names: list[str]) -> Callable[[object], object]:
    """What reads these fields, all at once."""
    return attrgetter(*names) if names else lambda _: ()


def _equal_by(values: Callable[[object], object]) -> Callable[[object, object], bool]:
    def equal(self: object, other: object) -> bool:
        return (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )

    return equal


def _repr_of(names: list[str]) -> Callable[[object], str]:
    @recursive_repr()
    def text(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return text


def _refuse(_: object, name: str, *__: object) -> None:
    raise FrozenInstanceError(f"the field {name!r} of a frozen record can't be changed")


def _state_of(self: object) -> list[object]:
    return [getattr(self, part.name) for part in fields(self)]  # type: ignore[arg-type]


def _restore(self: object, state: list[object]) -> None:
    for part, value in zip(fields(self), state, strict=True):  # type: ignore[arg-type]
        object.__setattr__(self, part.name, value)
