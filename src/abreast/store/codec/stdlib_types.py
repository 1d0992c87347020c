"""The stored forms of values of the standard library: how each is written and read back."""

import base64
import datetime as dt
import os
import zoneinfo
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final
from uuid import UUID

from abreast.core.errors import StoreError, TypeNotLoaded, type_name
from abreast.store.codec import named_types
from abreast.store.codec.encoder import Encoder, Form, ValueRefused, Writer, tagged
from abreast.store.codec.json_text import TAG, is_text, json_writer

_to_sorted_json: Final = json_writer(sort_keys=True)
_PATHS: Final = {
    kind.__name__: kind for kind in (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)
}
_FOREIGN_PATH: Final = "PosixPath" if os.name == "nt" else "WindowsPath"


def to_form(value: object, *, canonical: bool) -> object:
    """The form of `value` in JSON's own types; `ValueRefused` if there is none."""
    return Encoder(_writer_of, canonical=canonical).form(value)


def revive(form: Form, types: named_types.Types) -> object:
    """The value of a form; the values inside it have been revived already."""
    tag = form.get(TAG)
    if tag is None:
        return form
    reader, by_name = _READERS.get(tag), _READERS_BY_NAME.get(tag)
    if reader is None and by_name is None:
        raise StoreError(
            f"a recorded value has the form {tag!r}, which this version of abreast doesn't know"
        )
    try:
        return reader(form) if by_name is None else by_name(form, types)  # type: ignore[misc]
    except TypeNotLoaded:
        raise
    except Exception as error:
        what = form.get("t", tag)
        raise StoreError(
            f"a recorded value, a {what}, can't be read back: {type(error).__name__}: {error}"
        ) from error


def revive_facts(form: Form) -> object:
    """The same for the facts of an event or a run, in which named types stay plain data."""
    return flatten(form) if form.get(TAG) in _READERS_BY_NAME else revive(form, {})


def flatten(form: Form) -> object:
    """The value of a form in JSON's own types; an unknown form is returned unchanged."""
    flat = _FLAT.get(form.get(TAG, ""))
    return form if flat is None else flat(form)


def _writer_of(value: object) -> Writer:
    return _WRITERS.get(type(value)) or named_types.writer_by_name(value)


def _write_dict(value: dict[Any, object], encoder: Encoder) -> Form:
    if TAG not in value and all(type(key) is str and is_text(key) for key in value):
        return encoder.fields(value, "[{!r}]")
    pairs: list[list[object]] = []
    for key, inner in value.items():
        try:
            pairs.append([encoder.form(key), encoder.form(inner)])
        except ValueRefused as refused:
            shown = (
                repr(key)[:80]
                if type(key) in (str, int, float, bytes)
                else f"a {type_name(type(key))}"
            )
            raise refused.step(f"[{shown}]") from None
    if encoder.canonical:
        pairs.sort(key=_to_sorted_json)
    return tagged("dict", pairs)


def _write_set(value: set[object] | frozenset[object], encoder: Encoder) -> Form:
    try:
        forms = [encoder.form(member) for member in value]
    except ValueRefused as refused:
        raise refused.step("{}") from None
    return tagged(type(value).__name__, sorted(forms, key=_to_sorted_json))


def _write_moment(value: dt.datetime | dt.time, encoder: Encoder) -> Form:
    form = tagged(type(value).__name__, value.replace(tzinfo=None).isoformat())
    if value.tzinfo is not None:
        form |= encoder.fields({"tzinfo": value.tzinfo})
    if value.fold:
        form["fold"] = 1
    return form


def _read_moment(form: Form, kind: type[dt.datetime | dt.time]) -> object:
    return kind.fromisoformat(form["v"]).replace(
        tzinfo=form.get("tzinfo"), fold=form.get("fold", 0)
    )


def _flat_moment(form: Form) -> str:
    return f"{form['v']}[{form['tzinfo']}]" if "tzinfo" in form else str(form["v"])


def _write_zone(value: zoneinfo.ZoneInfo, _encoder: Encoder) -> Form:
    if value.key is None:
        raise ValueRefused("is a time zone without a name")
    return tagged("zone", value.key)


def _write_timezone(value: dt.timezone, encoder: Encoder) -> Form:
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
    return tagged("timezone", [offset // dt.timedelta(microseconds=1), *encoder.each(name)])


def _read_timezone(form: Form) -> dt.timezone:
    offset, *name = form["v"]
    return dt.timezone(dt.timedelta(microseconds=offset), *name)


def _read_path(form: Form) -> PurePath:
    """A path; one of another system can't be created here, so its pure form is used."""
    kind = form["t"]
    return _PATHS[f"Pure{kind}" if kind == _FOREIGN_PATH else kind](form["v"])


def _read_str(form: Form) -> str:
    return str(form["v"].encode("ascii").decode("unicode_escape"))


_WRITERS: Final[Mapping[type, Writer]] = {
    list: lambda value, encoder: encoder.each(value),
    dict: _write_dict,
    tuple: lambda value, encoder: tagged("tuple", encoder.each(value)),
    set: _write_set,
    frozenset: _write_set,
    bytes: lambda value, _: tagged("bytes", base64.b64encode(value).decode("ascii")),
    dt.datetime: _write_moment,
    dt.time: _write_moment,
    dt.date: lambda value, _: tagged("date", value.isoformat()),
    dt.timedelta: lambda value, _: tagged(
        "timedelta", [value.days, value.seconds, value.microseconds]
    ),
    dt.timezone: _write_timezone,
    zoneinfo.ZoneInfo: _write_zone,
    Decimal: lambda value, _: tagged("decimal", str(value)),
    Fraction: lambda value, encoder: tagged(
        "fraction", encoder.each([value.numerator, value.denominator])
    ),
    complex: lambda value, encoder: tagged("complex", encoder.each([value.real, value.imag])),
    UUID: lambda value, _: tagged("uuid", str(value)),
    **dict.fromkeys(
        _PATHS.values(),
        lambda value, encoder: tagged("path", encoder.form(str(value)), t=type(value).__name__),
    ),
}

_READERS: Final[Mapping[str, Callable[[Form], object]]] = {
    "str": _read_str,
    "int": lambda form: int(form["v"], 16),
    "float": lambda form: float(form["v"]),
    "dict": lambda form: dict(form["v"]),
    "tuple": lambda form: tuple(form["v"]),
    "set": lambda form: set(form["v"]),
    "frozenset": lambda form: frozenset(form["v"]),
    "bytes": lambda form: base64.b64decode(form["v"], validate=True),
    "datetime": lambda form: _read_moment(form, dt.datetime),
    "time": lambda form: _read_moment(form, dt.time),
    "date": lambda form: dt.date.fromisoformat(form["v"]),
    "timedelta": lambda form: dt.timedelta(*form["v"]),
    "timezone": _read_timezone,
    "zone": lambda form: zoneinfo.ZoneInfo(form["v"]),
    "decimal": lambda form: Decimal(form["v"]),
    "fraction": lambda form: Fraction(*form["v"]),
    "complex": lambda form: complex(*form["v"]),
    "uuid": lambda form: UUID(form["v"]),
    "path": _read_path,
}

_READERS_BY_NAME: Final[Mapping[str, Callable[[Form, named_types.Types], object]]] = {
    "dataclass": named_types.read_dataclass,
    "namedtuple": named_types.read_namedtuple,
    "enum": named_types.read_enum,
    "flag": named_types.read_flag,
    "model": named_types.read_model,
    "dumped": named_types.read_dump,
}

_FLAT: Final[Mapping[str, Callable[[Form], object]]] = {
    **dict.fromkeys((*_READERS, *_READERS_BY_NAME), lambda form: form["v"]),
    "str": lambda form: _read_str(form).encode("utf-8", "replace").decode(),
    "int": _READERS["int"],
    "dict": lambda form: {str(key): inner for key, inner in form["v"]},
    "bytes": lambda form: {"base64": form["v"]},
    "datetime": _flat_moment,
    "time": _flat_moment,
    "timedelta": lambda form: str(dt.timedelta(*form["v"])),
    "timezone": lambda form: str(_read_timezone(form)),
    "fraction": lambda form: f"{form['v'][0]}/{form['v'][1]}",
    "complex": lambda form: str(complex(*map(float, form["v"]))),
    "enum": lambda form: f"{form['t'].rpartition(':')[2]}.{form['v']}",
    "flag": lambda form: f"{form['t'].rpartition(':')[2]}({form['v']})",
}
