"""Describes values of numpy and pandas.

Neither is imported: their values exist only if the module is already loaded.

Of an array count the type, dtype, shape, every element (NaN and NaT equal themselves), and which
arrays share its memory. Masked elements of a masked array don't count. Subclasses other than
numpy's own are described by their base and the state they add; subclasses of pandas' types can't be
compared.
"""

import sys
from typing import Any

from abreast.jobs.candidates.values.object_layout import (
    ByType,
    Owner,
    Unreadable,
    ValueDescription,
    base_of,
    is_accounted,
    is_local_class,
    is_plain_class,
    label_of,
    module_of,
    own_state,
)


def describe(value: object) -> ValueDescription | None:
    """Describe a value of numpy or pandas; None if it is neither. Raises `Unreadable`."""
    for name, read, needed in (
        ("numpy", _numpy, ("ndarray", "ma")),
        ("pandas", _pandas, ("DataFrame", "api")),
    ):
        module = sys.modules.get(name)
        if (
            module is not None
            and all(hasattr(module, one) for one in needed)
            and (description := read(module, value)) is not None
        ):
            return description
    return None


# --- numpy


def _numpy(np: Any, value: Any) -> ValueDescription | None:  # noqa: ANN401 - numpy is not imported
    cls = type(value)
    if issubclass(cls, np.ndarray):
        return _array_or_subclass(np, value)
    if issubclass(cls, np.generic):
        return _scalar(np, value)
    if issubclass(cls, np.dtype):
        return ValueDescription("atom", repr(value))
    if issubclass(cls, np.ufunc):
        return ValueDescription("named", f"numpy.{value.__name__}")
    return _random_generator(np, value)


def _random_generator(np: Any, value: Any) -> ValueDescription | None:  # noqa: ANN401 - not imported
    """Describe a random generator by the state of its bit generator, which may be shared."""
    cls = type(value)
    random = getattr(np, "random", None)
    if random is None or is_plain_class(cls):
        return None
    if cls is random.Generator:
        return ValueDescription(
            "object", state=[("bit_generator", value.bit_generator)], identity=True
        )
    if cls is random.RandomState:
        gauss = {key: held for key, held in value.get_state(legacy=False).items() if key != "state"}
        bits = value._bit_generator  # noqa: SLF001 - RandomState has no public name for it
        return ValueDescription(
            "object", state=[("bit_generator", bits), ("gauss", gauss)], identity=True
        )
    if issubclass(cls, random.BitGenerator) or cls is random.SeedSequence:
        return ValueDescription("object", state=[("state", value.state)], identity=True)
    return None


def _scalar(np: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    if is_plain_class(type(value)):
        raise Unreadable("a scalar of a class that is not numpy's")
    held = np.empty((), value.dtype)
    held[()] = value
    description = _array(np, held)
    description.identity = False
    description.state = [one for one in description.state if one[0] not in ("shape", "<memory>")]
    return description


def _array_or_subclass(np: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    cls = type(value)
    if cls is np.ma.MaskedArray or cls is type(np.ma.masked):
        return _masked_array(np, value)
    description = _array(np, np.ndarray.view(value, np.ndarray))
    at = cls
    while at is not np.ndarray:
        if not is_accounted(at):
            raise Unreadable(f"the state of {label_of(at)} can't be read")
        at = base_of(at) or np.ndarray
    description.state += [(f"<own>.{name}", held) for name, held in own_state(value, np.ndarray)]
    return description


def _masked_array(np: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    mask = np.array(np.ma.getmaskarray(value))
    data = np.array(np.ndarray.view(value, np.ndarray))
    if data.dtype.names is None:
        data[mask] = np.zeros((), data.dtype)[()]
    state = [
        ("data", data),
        ("mask", mask),
        ("fill_value", value.fill_value),
        ("hard", value.hardmask),
    ]
    return ValueDescription("object", state=state, identity=True)


def _array(np: Any, plain: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    """Describe a plain array: numbers as one block; objects, fields and long doubles singly."""
    kind = plain.dtype
    owner = plain
    while owner.base is not None:
        owner = owner.base
        if not issubclass(type(owner), np.ndarray):
            break
    state = [("dtype", repr(kind)), ("shape", tuple(plain.shape)), ("<memory>", Owner(owner))]
    if kind.names is not None:
        fields = [(f"<field>.{name}", np.ascontiguousarray(plain[name])) for name in kind.names]
        return ValueDescription("items", state=[*state, *fields], identity=True)
    if kind.char in "gG" or kind.kind not in "biufcMmSUV":
        items = list(map(repr, plain.ravel())) if kind.char in "gG" else plain.ravel().tolist()
        return ValueDescription("items", items=items, state=state, identity=True)
    return ValueDescription(
        f"block:{_struct_format(kind)}",
        plain.tobytes().decode("latin-1"),
        state=state,
        identity=True,
    )


def _struct_format(kind: Any) -> str:  # noqa: ANN401 - not imported
    is_big = kind.byteorder == ">" or (kind.byteorder == "=" and sys.byteorder == "big")
    letters = _STRUCT_FORMATS.get(kind.kind, {}).get(kind.itemsize)
    return f"{'>' if is_big else '<'}{letters}" if letters else f"{max(1, kind.itemsize)}s"


# By kind of a dtype, and the bytes of an element.
_STRUCT_FORMATS = {
    "f": {2: "e", 4: "f", 8: "d"},
    "i": {1: "b", 2: "h", 4: "i", 8: "q"},
    "u": {1: "B", 2: "H", 4: "I", 8: "Q"},
    "c": {8: "ff", 16: "dd"},
}


# --- pandas


def _pandas(pd: Any, value: Any) -> ValueDescription | None:  # noqa: ANN401 - pandas is not imported
    cls = type(value)
    if value is pd.NA or value is pd.NaT:
        return ValueDescription("atom", "NA" if value is pd.NA else "NaT")
    scalars = {
        pd.Timestamp: ("value", "unit", "tz"),
        pd.Timedelta: ("value", "unit"),
        pd.Interval: ("left", "right", "closed"),
        pd.Period: ("ordinal", "freqstr"),
    }
    if names := ByType[tuple[str, ...]](scalars).get(cls):
        return ValueDescription("object", state=[(name, getattr(value, name)) for name in names])
    kinds = (
        (pd.DataFrame, _frame),
        (pd.Series, _series),
        (pd.Index, _index),
        (pd.api.extensions.ExtensionArray, _extension),
        (pd.api.extensions.ExtensionDtype, _dtype),
    )
    for kind, read in kinds:
        if issubclass(cls, kind):
            if is_local_class(cls) or not (module_of(cls) or "").startswith("pandas"):
                raise Unreadable(f"a {kind.__name__} of a class that is not pandas' own")
            return read(pd, value)
    return None


def _dtype(pd: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    more = ByType[tuple[str, ...]](
        {pd.CategoricalDtype: ("categories", "ordered"), pd.StringDtype: ("storage", "na_value")}
    ).get(type(value))
    return ValueDescription(
        "atom", str(value), state=[(name, getattr(value, name)) for name in more or ()]
    )


def _frame(_: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    return ValueDescription(
        "items",
        items=[_column(value.iloc[:, at].array) for at in range(value.shape[1])],
        state=[("columns", value.columns), ("index", value.index), ("attrs", value.attrs)],
        identity=True,
    )


def _series(_: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    state = [
        ("name", value.name),
        ("index", value.index),
        ("attrs", value.attrs),
        ("values", _column(value.array)),
    ]
    return ValueDescription("object", state=state, identity=True)


def _index(pd: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    cls = type(value)
    state: list[tuple[str, object]] = [("names", tuple(value.names))]
    if cls is pd.MultiIndex:
        levels = [_column(value.get_level_values(at).array) for at in range(value.nlevels)]
        return ValueDescription("items", items=levels, state=state)
    state.append(
        ("range", range(value.start, value.stop, value.step))
        if cls is pd.RangeIndex
        else ("values", _column(value.array))
    )
    if cls is pd.DatetimeIndex or cls is pd.TimedeltaIndex:
        state.append(("freq", value.freqstr))
    return ValueDescription("object", state=state)


def _column(array: Any) -> Any:  # noqa: ANN401 - not imported
    """Return the values of a column without pandas' wrapper, and without sharing its memory."""
    return array.to_numpy().copy() if type(array).__name__ == "NumpyExtensionArray" else array


def _extension(pd: Any, value: Any) -> ValueDescription:  # noqa: ANN401 - not imported
    state: list[tuple[str, object]] = [("dtype", value.dtype)]
    if type(value) is pd.Categorical:
        state += [
            ("codes", value.codes.copy()),
            ("categories", value.categories),
            ("ordered", value.ordered),
        ]
        return ValueDescription("object", state=state, identity=True)
    return ValueDescription("items", items=list(value), state=state, identity=True)
