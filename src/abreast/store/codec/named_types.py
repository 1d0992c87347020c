"""Values of types that are found again by name: dataclasses, enums, named tuples and pydantic models.

They are written by their state and made again without running `__init__`, `__post_init__` or
validators, so that what is read back is what was written. A field that the type has gained since
then gets its default.

A store may come from anywhere, so reading one imports nothing but abreast's own modules, by the table of
`abreast.store.codec.type_names`. A type of the user's has to be imported already, or be handed in.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cached_property
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from abreast.core.errors import TypeNotLoaded
from abreast.store.codec.codec import type_name
from abreast.store.codec.encoder import Encoder, Form, ValueRefused, Writer, tagged
from abreast.store.codec.type_names import digest_name, home_of, stable_name

Types: TypeAlias = Mapping[str, type]
"""Types that were handed in, by `module:qualname`."""

_MAIN = "__main__"


class _Model(Protocol):
    """What is used of a pydantic model, which is never imported here."""

    def model_dump(self, *, mode: str, by_alias: bool, round_trip: bool) -> object: ...

    @classmethod
    def model_validate(cls, plain: object) -> object: ...


def writer_by_name(value: object) -> Writer:
    """How to write a value whose type is found by its name; `ValueRefused` for all others."""
    pydantic = sys.modules.get("pydantic")
    if isinstance(value, enum.Enum):
        return _write_enum
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return _write_model
    if dataclasses.is_dataclass(value):
        return _write_dataclass
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _write_namedtuple
    raise ValueRefused(f"is a {type_name(type(value))}, which has no stored form")


def types_by_name(types: Iterable[object]) -> Types:
    """Types handed in to be read back; TypeError for one that the codec never writes by name."""
    found: dict[str, type] = {}
    for kind in types:
        if not isinstance(kind, type) or not any(fits(kind) for fits in _KINDS):
            raise TypeError(
                f"types must be dataclasses, enums, named tuples or pydantic models, not {kind!r}"
            )
        found[_place_of(kind)] = kind
    return found


def _place_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _name_of(kind: type, walk: Encoder) -> str:
    """The name to write, once it is sure that the type will be found by it again.

    A digest is made of the name that a type had first: it must be the same as that of a value
    recorded before.
    """
    place = _place_of(kind)
    if "<locals>" in place:
        raise ValueRefused(
            f"is a {type_name(kind)}, a class made inside a function; move it to the top of its module"
        )
    module = sys.modules.get(kind.__module__)
    if module is None or _within(module, kind.__qualname__) is not kind:
        raise ValueRefused(
            f"is a {type_name(kind)}, but {kind.__module__} has another thing, or nothing, under that name"
        )
    stable = stable_name(place)
    if stable is None:
        return place
    return digest_name(stable) if walk.canonical else stable


def _find(name: str, given: Types) -> object:
    """The type of that name: abreast's own, one handed in, or one whose module is imported already."""
    home = home_of(name)
    module_name, _, qualname = (home or name).partition(":")
    if home is not None:
        return _within(importlib.import_module(module_name), qualname)
    module = sys.modules.get(module_name)
    found: object = given.get(name)
    if found is None and module is not None:
        found = _within(module, qualname)
    if (
        found is None and module_name == _MAIN
    ):  # recorded by a script that is imported under its own name now
        same = [kind for kind in given.values() if kind.__qualname__ == qualname]
        found = same[0] if len(same) == 1 else None
    if found is None:
        if module is not None and module_name != _MAIN:
            raise AttributeError(f"{module_name} has no {qualname!r}")
        raise _not_loaded(module_name, qualname)
    return found


def _within(module: ModuleType, qualname: str) -> object:
    """What a module holds under a name.

    None if nothing. No `__getattr__` is called: it may import, or do anything.
    """
    found: object = module
    for part in qualname.split("."):
        found = vars(found).get(part) if isinstance(found, (ModuleType, type)) else None
    return found


def _not_loaded(module: str, qualname: str) -> TypeNotLoaded:
    said = f"a recorded value is a {module}:{qualname}"
    given = f"pass open_run(types=[{qualname}])"
    if module == _MAIN:
        return TypeNotLoaded(
            f"{said}, a type of the script that recorded it: resume with that script, or {given}"
        )
    return TypeNotLoaded(
        f"{said}, and a store's types are never imported: import {module} first, or {given}"
    )


def _type(form: Form, fits: Callable[[Any], bool], given: Types) -> type[Any]:
    """The type it was; a name that now means another sort of thing is refused, so that nothing else gets called."""
    kind = _find(form["t"], given)
    if not isinstance(kind, type) or not fits(kind):
        raise TypeError("that name is now another sort of thing")
    return kind


def _beside(value: object, known: Container[str]) -> dict[str, object]:
    """Attributes beside the known ones, such as `__post_init__` may set.

    What is only cached isn't kept.
    """
    return {
        name: inner
        for name, inner in getattr(value, "__dict__", {}).items()
        if name not in known and not isinstance(getattr(type(value), name, None), cached_property)
    }


def _write_dataclass(value: object, walk: Encoder) -> Form:
    kind: Any = type(value)
    try:
        object.__new__(kind)
    except TypeError:
        raise ValueRefused(
            f"is a {type_name(kind)}, a dataclass that is also a builtin container or error"
        ) from None
    names = [field.name for field in dataclasses.fields(kind)]
    state = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return tagged(
        "dataclass", walk.fields({**state, **_beside(value, state)}), t=_name_of(kind, walk)
    )


def read_dataclass(form: Form, given: Types) -> object:
    """The dataclass's instance, frozen or not, slotted or not."""
    kind = _type(form, _is_dataclass, given)
    value, state = object.__new__(kind), form["v"]
    for field in dataclasses.fields(kind):
        if field.name not in state and field.default is not dataclasses.MISSING:
            state[field.name] = field.default
        elif field.name not in state and field.default_factory is not dataclasses.MISSING:
            state[field.name] = field.default_factory()
    for name, inner in state.items():
        object.__setattr__(value, name, inner)
    return value


def _write_enum(value: enum.Enum, walk: Encoder) -> Form:
    name = _name_of(type(value), walk)
    if isinstance(
        value, enum.Flag
    ):  # a combination of flags is no member, so it goes by its number
        return tagged("flag", walk.form(value.value), t=name)
    return tagged("enum", value.name, t=name)


def read_enum(form: Form, given: Types) -> object:
    """The enum's member."""
    return _type(form, _is_enum, given)[form["v"]]


def read_flag(form: Form, given: Types) -> object:
    """The flags that were set."""
    return _type(form, lambda kind: issubclass(kind, enum.Flag), given)(form["v"])


def _write_namedtuple(value: tuple[object, ...], walk: Encoder) -> Form:
    kind: Any = type(value)
    if getattr(value, "__dict__", None):
        raise ValueRefused(f"is a {type_name(kind)}, a named tuple with attributes of its own")
    return tagged(
        "namedtuple",
        walk.fields(dict(zip(kind._fields, value, strict=True))),
        t=_name_of(kind, walk),
    )


def read_namedtuple(form: Form, given: Types) -> object:
    """The named tuple."""
    kind = _type(form, _is_tuple, given)
    state = {**kind._field_defaults, **form["v"]}
    return tuple.__new__(kind, (state[name] for name in kind._fields))


def _write_model(value: _Model, walk: Encoder) -> Form:
    """By its state; by its own dump where the state has types that only pydantic knows, such as URLs."""
    name, depth = _name_of(type(value), walk), walk.depth
    state: Any = value.__getstate__()
    rest = {key: inner for key, inner in state.items() if key != "__dict__"}
    try:
        return tagged("model", walk.fields(_beside(value, ())), t=name, state=walk.form(rest))
    except ValueRefused as refused:
        walk.depth = depth
        return _write_dump(value, name, refused, walk)


def _write_dump(value: _Model, name: str, refused: ValueRefused, walk: Encoder) -> Form:
    try:
        plain = value.model_dump(mode="json", by_alias=True, round_trip=True)
        same = type(value).model_validate(plain) == value
    except Exception as error:  # serialisers and validators are the user's, and may raise anything
        raise refused from error
    if not same:
        raise refused
    return tagged("dumped", walk.form(plain), t=name)


def _is_dataclass(kind: type) -> bool:
    return dataclasses.is_dataclass(kind)


def _is_enum(kind: type) -> bool:
    return issubclass(kind, enum.Enum)


def _is_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _is_model(kind: type) -> bool:
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate")


_KINDS = (_is_dataclass, _is_enum, _is_tuple, _is_model)


def read_model(form: Form, given: Types) -> object:
    """The model, from its state."""
    kind = _type(form, _is_model, given)
    fields = form["v"]
    for name, field in kind.model_fields.items():
        if name not in fields and not field.is_required():
            fields[name] = field.get_default(call_default_factory=True)
    value: Any = object.__new__(kind)
    value.__setstate__({"__dict__": fields, **form["state"]})
    return value


def read_dump(form: Form, given: Types) -> object:
    """The model, from its own dump."""
    return _type(form, _is_model, given).model_validate(form["v"])
