"""How values of numpy and pandas are read.

Neither is imported: a value of theirs can only be here if its module is.

Of arrays count the type, dtype, shape, every element (NaN and NaT equal themselves), and which
arrays share memory. What lies beneath the mask of a masked array doesn't count. Subclasses other
than numpy's own are read as their base and the state they add; those of pandas' types are beyond
comparison.
"""

from __future__ import annotations

import sys
from typing import Any

from abreast.jobs.candidates.values.object_layout import (
    ByType,
    Owner,
    Sketch,
    Unreadable,
    base_of,
    is_accounted,
    is_local_class,
    is_plain_class,
    label_of,
    module_of,
    own_state,
)


def describe(value: object) -> Sketch | None:
    """What a value of numpy or pandas is made of, None if it is neither. Raises `Unreadable`."""
    for name, read, needed in (
        ("numpy", _numpy, ("ndarray", "ma")),
        ("pandas", _pandas, ("DataFrame", "api")),
    ):
        module = sys.modules.get(name)
        if module is not None and all(hasattr(module, one) for one in needed):
            sketch = read(module, value)
            if sketch is not None:
                return sketch
    return None


# --- numpy


def _numpy(np: Any, value: Any) -> Sketch | None:  # noqa: ANN401 - numpy is not imported, so has no types here
    cls = type(value)
    if issubclass(cls, np.ndarray):
        return _any_array(np, value)
    if issubclass(cls, np.generic):
        return _scalar(np, value)
    if issubclass(cls, np.dtype):
        return Sketch("atom", repr(value))
    if issubclass(cls, np.ufunc):
        return Sketch("named", f"numpy.{value.__name__}")
    return _random(np, value)


def _random(np: Any, value: Any) -> Sketch | None:  # noqa: ANN401
    """A generator of random numbers: the bits that it draws from, which others may draw from too, by their state."""
    cls = type(value)
    random = getattr(np, "random", None)
    if random is None or is_plain_class(cls):
        return None
    if cls is random.Generator:
        return Sketch("object", state=[("bit_generator", value.bit_generator)], identity=True)
    if cls is random.RandomState:
        state = {key: held for key, held in value.get_state(legacy=False).items() if key != "state"}
        return Sketch(
            "object",
            state=[("bit_generator", value._bit_generator), ("gauss", state)],
            identity=True,
        )
    if issubclass(cls, random.BitGenerator) or cls is random.SeedSequence:
        return Sketch("object", state=[("state", value.state)], identity=True)
    return None


def _scalar(np: Any, value: Any) -> Sketch:  # noqa: ANN401
    if is_plain_class(type(value)):
        raise Unreadable("a scalar of a class that is not numpy's")
    held = np.empty((), value.dtype)
    held[()] = value
    sketch = _array(np, held)
    sketch.identity = False
    sketch.state = [one for one in sketch.state if one[0] not in ("shape", "<memory>")]
    return sketch


def _any_array(np: Any, value: Any) -> Sketch:  # noqa: ANN401
    cls = type(value)
    if cls is np.ma.MaskedArray or cls is type(np.ma.masked):
        return _masked(np, value)
    sketch = _array(np, np.ndarray.view(value, np.ndarray))
    at = cls
    while at is not np.ndarray:
        if not is_accounted(at):
            raise Unreadable(f"the state of {label_of(at)} can't be read")
        at = base_of(at) or np.ndarray
    sketch.state += [(f"<own>.{name}", held) for name, held in own_state(value, np.ndarray)]
    return sketch


def _masked(np: Any, value: Any) -> Sketch:  # noqa: ANN401
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
    return Sketch("object", state=state, identity=True)


def _array(np: Any, plain: Any) -> Sketch:  # noqa: ANN401
    """A plain array: its numbers as one block; objects, fields and long doubles one by one."""
    kind = plain.dtype
    owner = plain
    while owner.base is not None:
        owner = owner.base
        if not issubclass(type(owner), np.ndarray):
            break
    state = [("dtype", repr(kind)), ("shape", tuple(plain.shape)), ("<memory>", Owner(owner))]
    if kind.names is not None:
        fields = [(f"<field>.{name}", np.ascontiguousarray(plain[name])) for name in kind.names]
        return Sketch("items", state=[*state, *fields], identity=True)
    if kind.kind == "O":
        return Sketch("items", items=plain.ravel().tolist(), state=state, identity=True)
    if kind.char in "gG":
        return Sketch(
            "items", items=[repr(one) for one in plain.ravel()], state=state, identity=True
        )
    if kind.kind not in "biufcMmSUV":
        return Sketch("items", items=plain.ravel().tolist(), state=state, identity=True)
    return Sketch(
        f"block:{_form(kind)}", plain.tobytes().decode("latin-1"), state=state, identity=True
    )


def _form(kind: Any) -> str:  # noqa: ANN401
    """How `struct` reads an element."""
    order = (
        ">" if kind.byteorder == ">" or (kind.byteorder == "=" and sys.byteorder == "big") else "<"
    )
    if kind.kind == "f":
        return order + {2: "e", 4: "f", 8: "d"}[kind.itemsize]
    if kind.kind in "iu":
        letter = {1: "b", 2: "h", 4: "i", 8: "q"}[kind.itemsize]
        return order + (letter.upper() if kind.kind == "u" else letter)
    if kind.kind == "c":
        return order + ("ff" if kind.itemsize == 8 else "dd")  # noqa: PLR2004 - bytes of a complex64
    return f"{max(1, kind.itemsize)}s"


# --- pandas


def _pandas(pd: Any, value: Any) -> Sketch | None:  # noqa: ANN401 - pandas is not imported either
    cls = type(value)
    if value is pd.NA or value is pd.NaT:
        return Sketch("atom", "NA" if value is pd.NA else "NaT")
    scalars = {pd.Timestamp: ("value", "unit", "tz"), pd.Timedelta: ("value", "unit")}
    scalars |= {pd.Interval: ("left", "right", "closed"), pd.Period: ("ordinal", "freqstr")}
    names = ByType[tuple[str, ...]](scalars).get(cls)
    if names:
        return Sketch("object", state=[(name, getattr(value, name)) for name in names])
    kinds = ((pd.DataFrame, _frame), (pd.Series, _series), (pd.Index, _index))
    more = (
        (pd.api.extensions.ExtensionArray, _extension),
        (pd.api.extensions.ExtensionDtype, _dtype),
    )
    for kind, read in (*kinds, *more):
        if issubclass(cls, kind):
            if is_local_class(cls) or not (module_of(cls) or "").startswith("pandas"):
                raise Unreadable(f"a {kind.__name__} of a class that is not pandas' own")
            return read(pd, value)
    return None


def _dtype(pd: Any, value: Any) -> Sketch:  # noqa: ANN401
    more = ByType[tuple[str, ...]](
        {pd.CategoricalDtype: ("categories", "ordered"), pd.StringDtype: ("storage", "na_value")}
    ).get(type(value))
    return Sketch("atom", str(value), state=[(name, getattr(value, name)) for name in more or ()])


def _frame(_: Any, value: Any) -> Sketch:  # noqa: ANN401
    columns = [_column(value.iloc[:, at].array) for at in range(value.shape[1])]
    state = [("columns", value.columns), ("index", value.index), ("attrs", value.attrs)]
    return Sketch("items", items=columns, state=state, identity=True)


def _series(_: Any, value: Any) -> Sketch:  # noqa: ANN401
    state = [
        ("name", value.name),
        ("index", value.index),
        ("attrs", value.attrs),
        ("values", _column(value.array)),
    ]
    return Sketch("object", state=state, identity=True)


def _index(pd: Any, value: Any) -> Sketch:  # noqa: ANN401
    cls = type(value)
    names = tuple(value.names)
    if cls is pd.MultiIndex:
        levels = [_column(value.get_level_values(at).array) for at in range(value.nlevels)]
        return Sketch("items", items=levels, state=[("names", names)])
    state = [("names", names), ("values", _column(value.array))]
    if cls is pd.RangeIndex:
        state = [("names", names), ("range", range(value.start, value.stop, value.step))]
    if cls is pd.DatetimeIndex or cls is pd.TimedeltaIndex:
        state.append(("freq", value.freqstr))
    return Sketch("object", state=state)


def _column(array: Any) -> Any:  # noqa: ANN401
    """The values of a column without pandas' thin wrapper round a plain array, and without the memory it shares."""
    if type(array).__name__ == "NumpyExtensionArray":
        return array.to_numpy().copy()
    return array


def _extension(pd: Any, value: Any) -> Sketch:  # noqa: ANN401
    state: list[tuple[str, object]] = [("dtype", value.dtype)]
    if type(value) is pd.Categorical:
        state += [
            ("codes", value.codes.copy()),
            ("categories", value.categories),
            ("ordered", value.ordered),
        ]
        return Sketch("object", state=state, identity=True)
    return Sketch("items", items=list(value), state=state, identity=True)
