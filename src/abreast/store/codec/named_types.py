"""Values whose types are found by name: dataclasses, enums, named tuples, pydantic models.

Their state is written, and they are created again without running `__init__`, `__post_init__` or
validators, so that what is read back equals what was written. A field that the type has gained
since then gets its default.

A store may come from an untrusted source, so reading one imports only abreast's own modules, by the
table of `abreast.store.codec.type_names`. A user's type must be imported already, or be given as an
argument.
"""

import dataclasses
import enum
import importlib
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from functools import cached_property
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from abreast.core.errors import TypeNotLoaded, type_name
from abreast.core.frozen import LATER
from abreast.store.codec.encoder import Encoder, Form, ValueRefused, Writer, tagged
from abreast.store.codec.type_names import digest_name, home_of, stable_name

Types: TypeAlias = Mapping[str, type]  # the user's types for decoding, by `module:qualname`

_MAIN = "__main__"


class _Model(Protocol):
    """The methods used of a pydantic model; pydantic is never imported here."""

    def model_dump(self, *, mode: str, by_alias: bool, round_trip: bool) -> object: ...

    @classmethod
    def model_validate(cls, plain: object) -> object: ...


def writer_by_name(value: object) -> Writer:
    """The writer for a value whose type is found by its name; `ValueRefused` for all others."""
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
    """The user's types by name; TypeError for a type that the codec doesn't write by name."""
    found: dict[str, type] = {}
    for kind in types:
        if not isinstance(kind, type) or not (
            issubclass(kind, enum.Enum)
            or dataclasses.is_dataclass(kind)
            or _is_tuple(kind)
            or _is_model(kind)
        ):
            raise TypeError(
                f"types must be dataclasses, enums, named tuples or pydantic models, not {kind!r}"
            )
        found[_qualified_name(kind)] = kind
    return found


def _qualified_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _stored_name(kind: type, encoder: Encoder) -> str:
    """The name to write, after checking that the type can be found by it.

    A digest uses the type's first name, so that it equals the digest of a value recorded before a
    rename.
    """
    qualified = _qualified_name(kind)
    if "<locals>" in qualified:
        raise ValueRefused(
            f"is a {type_name(kind)}, a class made inside a function; "
            "move it to the top of its module"
        )
    module = sys.modules.get(kind.__module__)
    if module is None or _lookup(module, kind.__qualname__) is not kind:
        raise ValueRefused(
            f"is a {type_name(kind)}, but {kind.__module__} has another thing, or nothing, "
            "under that name"
        )
    stable = stable_name(qualified)
    if stable is None:
        return qualified
    return digest_name(stable) if encoder.canonical else stable


def _find(name: str, types: Types) -> object:
    """The type of that name: abreast's own, one of `types`, or one of an imported module."""
    home = home_of(name)
    module_name, _, qualname = (home or name).partition(":")
    if home is not None:
        return _lookup(importlib.import_module(module_name), qualname)
    module = sys.modules.get(module_name)
    found: object = types.get(name)
    if found is None and module is not None:
        found = _lookup(module, qualname)
    # Recorded by a script that is imported under its own name now.
    if found is None and module_name == _MAIN:
        same = [kind for kind in types.values() if kind.__qualname__ == qualname]
        found = same[0] if len(same) == 1 else None
    if found is None:
        if module is not None and module_name != _MAIN:
            raise AttributeError(f"{module_name} has no {qualname!r}")
        raise _not_loaded(module_name, qualname)
    return found


def _lookup(module: ModuleType, qualname: str) -> object:
    """The object with that name in a module, or None.

    No `__getattr__` is called, because it may import modules or do anything else.
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


def _find_type(form: Form, fits: Callable[[Any], bool], types: Types) -> type[Any]:
    """The type that a form names; TypeError if that name is another kind of object now.

    So nothing but a constructor of the expected kind is called.
    """
    kind = _find(form["t"], types)
    if not isinstance(kind, type) or not fits(kind):
        raise TypeError("that name is now another sort of thing")
    return kind


def _extra_attributes(value: object, known: Container[str]) -> dict[str, object]:
    """Attributes other than the known ones, such as `__post_init__` may set.

    Cached properties are left out.
    """
    return {
        name: inner
        for name, inner in getattr(value, "__dict__", {}).items()
        if name not in known and not isinstance(getattr(type(value), name, None), cached_property)
    }


def _write_dataclass(value: object, encoder: Encoder) -> Form:
    kind: Any = type(value)
    try:
        object.__new__(kind)
    except TypeError:
        raise ValueRefused(
            f"is a {type_name(kind)}, a dataclass that is also a builtin container or error"
        ) from None
    names = [
        field.name
        for field in dataclasses.fields(kind)
        if LATER not in field.metadata or getattr(value, field.name) != field.default
    ]
    state = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return tagged(
        "dataclass",
        encoder.fields({**state, **_extra_attributes(value, state)}),
        t=_stored_name(kind, encoder),
    )


def read_dataclass(form: Form, types: Types) -> object:
    """The instance of a dataclass, frozen or not, slotted or not."""
    kind = _find_type(form, dataclasses.is_dataclass, types)
    value, state = object.__new__(kind), form["v"]
    for field in dataclasses.fields(kind):
        if field.name not in state and field.default is not dataclasses.MISSING:
            state[field.name] = field.default
        elif field.name not in state and field.default_factory is not dataclasses.MISSING:
            state[field.name] = field.default_factory()
    for name, inner in state.items():
        object.__setattr__(value, name, inner)
    return value


def _write_enum(value: enum.Enum, encoder: Encoder) -> Form:
    name = _stored_name(type(value), encoder)
    # A combination of flags is no member, so it is written as its number.
    if isinstance(value, enum.Flag):
        return tagged("flag", encoder.form(value.value), t=name)
    return tagged("enum", value.name, t=name)


def read_enum(form: Form, types: Types) -> object:
    """The enum's member."""
    return _find_type(form, lambda kind: issubclass(kind, enum.Enum), types)[form["v"]]


def read_flag(form: Form, types: Types) -> object:
    """The flags that were set."""
    return _find_type(form, lambda kind: issubclass(kind, enum.Flag), types)(form["v"])


def _write_namedtuple(value: tuple[object, ...], encoder: Encoder) -> Form:
    kind: Any = type(value)
    if getattr(value, "__dict__", None):
        raise ValueRefused(f"is a {type_name(kind)}, a named tuple with attributes of its own")
    return tagged(
        "namedtuple",
        encoder.fields(dict(zip(kind._fields, value, strict=True))),
        t=_stored_name(kind, encoder),
    )


def read_namedtuple(form: Form, types: Types) -> object:
    """The named tuple."""
    kind = _find_type(form, _is_tuple, types)
    state = {**kind._field_defaults, **form["v"]}
    return tuple.__new__(kind, (state[name] for name in kind._fields))


def _write_model(value: _Model, encoder: Encoder) -> Form:
    """Write a model's state; or its own dump, if the state has types of pydantic, such as URLs."""
    name, depth = _stored_name(type(value), encoder), encoder.depth
    state: Any = value.__getstate__()
    rest = {key: inner for key, inner in state.items() if key != "__dict__"}
    try:
        return tagged(
            "model", encoder.fields(_extra_attributes(value, ())), t=name, state=encoder.form(rest)
        )
    except ValueRefused as refused:
        encoder.depth = depth
        return _write_dump(value, name, refused, encoder)


def _write_dump(value: _Model, name: str, refused: ValueRefused, encoder: Encoder) -> Form:
    try:
        plain = value.model_dump(mode="json", by_alias=True, round_trip=True)
        same = type(value).model_validate(plain) == value
    except Exception as error:  # serialisers and validators of the user may raise anything
        raise refused from error
    if not same:
        raise refused
    return tagged("dumped", encoder.form(plain), t=name)


def _is_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _is_model(kind: type) -> bool:
    return hasattr(kind, "__pydantic_validator__") and hasattr(kind, "model_validate")


def read_model(form: Form, types: Types) -> object:
    """The model, from its state."""
    kind = _find_type(form, _is_model, types)
    fields = form["v"]
    for name, field in kind.model_fields.items():
        if name not in fields and not field.is_required():
            fields[name] = field.get_default(call_default_factory=True)
    value: Any = object.__new__(kind)
    value.__setstate__({"__dict__": fields, **form["state"]})
    return value


def read_dump(form: Form, types: Types) -> object:
    """The model, from its own dump."""
    return _find_type(form, _is_model, types).model_validate(form["v"])
