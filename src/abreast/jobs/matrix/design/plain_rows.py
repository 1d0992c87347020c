"""Rows of Python objects as inputs: frames, mappings and values, in JSON's types."""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from os import PathLike, fspath
from typing import Any, Final
from uuid import UUID

_MISSING_TYPES: Final = ("NAType", "NaTType")  # of pandas, which is not imported here


def rows_in(given: object) -> list[Any]:
    """The rows of a pandas or polars frame, a pyarrow table, or any iterable, in JSON's types.

    Raises TypeError for what has no rows, and ValueError for a value that JSON doesn't have, with
    its place.
    """
    found: list[Any] = []
    for number, row in enumerate(_records(given)):
        try:
            found.append(plain_row(row))
        except ValueError as error:
            raise ValueError(f"inputs[{number}]{error}") from None
    return found


def _records(given: Any) -> Iterable[Any]:  # noqa: ANN401 - frames are known by their methods
    if hasattr(given, "columns") and hasattr(given, "iter_rows"):  # polars
        return given.iter_rows(named=True)  # type: ignore[no-any-return]
    if hasattr(given, "columns") and hasattr(given, "to_dict"):  # pandas
        return given.to_dict("records")  # type: ignore[no-any-return]
    if hasattr(given, "to_pylist"):  # pyarrow
        return given.to_pylist()  # type: ignore[no-any-return]
    if isinstance(given, Mapping):
        raise TypeError("inputs is a mapping, which is one row: put it into a list")
    if isinstance(given, (bytes, bytearray)) or not isinstance(given, Iterable):
        raise TypeError(
            "inputs must be rows, a frame, or the path of a file or directory, "
            f"not {type(given).__name__}"
        )
    return given


def plain_row(row: object) -> Any:  # noqa: ANN401 - any JSON value
    """A row in JSON's types; raises ValueError with the place of a value that is none of them."""
    return _plain(row, "")


def _plain(value: Any, place: str) -> Any:  # noqa: ANN401 - any value of the user's
    value = value.value if isinstance(value, Enum) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, (str, int)):  # NumPy's texts are a subclass
        return str(value) if isinstance(value, str) else int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(one, f"{place}[{name!r}]") for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one, f"{place}[{number}]") for number, one in enumerate(value)]
    return _converted(value, place)


def _converted(value: Any, place: str) -> Any:  # noqa: ANN401 - any value of the user's
    """A value of another type: a number of NumPy's, a date, a path."""
    if type(value).__name__ in _MISSING_TYPES:
        return None
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, PathLike):
        return fspath(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):  # a scalar or an array of NumPy's
        found = value.tolist()
        if type(found) is not type(value):
            return _plain(found, place)
    raise ValueError(
        f"{place} is of the type {type(value).__name__}; an input has texts, numbers, true and "
        "false, null, lists and mappings"
    )
