"""Values of types that are found again by name: dataclasses, enums, named tuples and pydantic models.

They are written by their state and made again without running `__init__`, `__post_init__` or validators, so that what
is read back is what was written. A field that the type has gained since then gets its default.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
from collections.abc import Callable, Container
from functools import cached_property
from typing import Any, Protocol

from abreast.store.codec import type_name
from abreast.store.walk import Form, Refused, Walk, Writer, tagged


class _Model(Protocol):
    """What is used of a pydantic model, which is never imported here."""

    def model_dump(self, *, mode: str, by_alias: bool, round_trip: bool) -> object: ...

    @classmethod
    def model_validate(cls, plain: object) -> object: ...


def writer_by_name(value: object) -> Writer:
    """How to write a value whose type is found by its name; `Refused` for all others."""
    pydantic = sys.modules.get("pydantic")
    if isinstance(value, enum.Enum):
        return _write_enum
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return _write_model
    if dataclasses.is_dataclass(value):
        return _write_dataclass
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _write_namedtuple
    raise Refused(f"is a {type_name(type(value))}, which has no stored form")


def _name_of(kind: type) -> str:
    """`module:qualname`, once it is sure that the type will be found there again."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    if "<locals>" in name:
        raise Refused(f"is a {type_name(kind)}, a class made inside a function; move it to the top of its module")
    try:
        found = _find(name)
    except (ImportError, AttributeError):
        found = None
    if found is not kind:
        raise Refused(f"is a {type_name(kind)}, but {kind.__module__} has another thing, or nothing, under that name")
    return name


def _find(name: str) -> object:
    module, _, qualname = name.partition(":")
    found: object = sys.modules.get(module) or importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _type(form: Form, fits: Callable[[Any], bool]) -> type[Any]:
    """The type it was; a name that now means another sort of thing is refused, so that nothing else gets called."""
    kind = _find(form["t"])
    if not isinstance(kind, type) or not fits(kind):
        raise TypeError("that name is now another sort of thing")
    return kind


def _beside(value: object, known: Container[str]) -> dict[str, object]:
    """Attributes beside the known ones, such as `__post_init__` may set; what is only cached isn't kept."""
    return {
        name: inner
        for name, inner in getattr(value, "__dict__", {}).items()
        if name not in known and not isinstance(getattr(type(value), name, None), cached_property)
    }


def _write_dataclass(value: object, walk: Walk) -> Form:
    kind: Any = type(value)
    try:
        object.__new__(kind)
    except TypeError:
        raise Refused(f"is a {type_name(kind)}, a dataclass that is also a builtin container or error") from None
    names = [field.name for field in dataclasses.fields(kind)]
    state = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return tagged("dataclass", walk.fields({**state, **_beside(value, state)}), t=_name_of(kind))


def read_dataclass(form: Form) -> object:
    """The dataclass's instance, frozen or not, slotted or not."""
    kind = _type(form, dataclasses.is_dataclass)
    value, state = object.__new__(kind), form["v"]
    for field in dataclasses.fields(kind):
        if field.name not in state and field.default is not dataclasses.MISSING:
            state[field.name] = field.default
        elif field.name not in state and field.default_factory is not dataclasses.MISSING:
            state[field.name] = field.default_factory()
    for name, inner in state.items():
        object.__setattr__(value, name, inner)
    return value


def _write_enum(value: enum.Enum, walk: Walk) -> Form:
    name = _name_of(type(value))
    if isinstance(value, enum.Flag):  # a combination of flags is no member, so it goes by its number
        return tagged("flag", walk.form(value.value), t=name)
    return tagged("enum", value.name, t=name)


def read_enum(form: Form) -> object:
    """The enum's member."""
    return _type(form, lambda kind: issubclass(kind, enum.Enum))[form["v"]]


def read_flag(form: Form) -> object:
    """The flags that were set."""
    return _type(form, lambda kind: issubclass(kind, enum.Flag))(form["v"])


def _write_namedtuple(value: tuple[object, ...], walk: Walk) -> Form:
    kind: Any = type(value)
    if getattr(value, "__dict__", None):
        raise Refused(f"is a {type_name(kind)}, a named tuple with attributes of its own")
    return tagged("namedtuple", walk.fields(dict(zip(kind._fields, value, strict=True))), t=_name_of(kind))


def read_namedtuple(form: Form) -> object:
    """The named tuple."""
    kind = _type(form, lambda found: issubclass(found, tuple) and hasattr(found, "_fields"))
    state = {**kind._field_defaults, **form["v"]}
    return tuple.__new__(kind, (state[name] for name in kind._fields))


def _write_model(value: _Model, walk: Walk) -> Form:
    """By its state; by its own dump where the state has types that only pydantic knows, such as URLs."""
    name, depth = _name_of(type(value)), walk.depth
    state: Any = value.__getstate__()
    rest = {key: inner for key, inner in state.items() if key != "__dict__"}
    try:
        return tagged("model", walk.fields(_beside(value, ())), t=name, state=walk.form(rest))
    except Refused as refused:
        walk.depth = depth
        return _write_dump(value, name, refused, walk)


def _write_dump(value: _Model, name: str, refused: Refused, walk: Walk) -> Form:
    try:
        plain = value.model_dump(mode="json", by_alias=True, round_trip=True)
        same = type(value).model_validate(plain) == value
    except Exception as error:  # serialisers and validators are the user's, and may raise anything
        raise refused from error
    if not same:
        raise refused
    return tagged("dumped", walk.form(plain), t=name)


def _is_model(kind: type) -> bool:
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate")


def read_model(form: Form) -> object:
    """The model, from its state."""
    kind = _type(form, _is_model)
    fields = form["v"]
    for name, field in kind.model_fields.items():
        if name not in fields and not field.is_required():
            fields[name] = field.get_default(call_default_factory=True)
    value: Any = object.__new__(kind)
    value.__setstate__({"__dict__": fields, **form["state"]})
    return value


def read_dump(form: Form) -> object:
    """The model, from its own dump."""
    return _type(form, _is_model).model_validate(form["v"])
