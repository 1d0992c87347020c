"""The encoder: converts a value to JSON's types, with limits on depth and size.

A refused value is reported with its place inside the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from abreast.store.codec.json_text import MAX_BYTES, MAX_DEPTH, MAX_INT_BITS, TAG, is_text

# A tagged object: the stored form of a value of a type that JSON doesn't have.
Form: TypeAlias = dict[str, Any]

Writer: TypeAlias = "Callable[[Any, Encoder], object]"

MAX_PLACE_STEPS: Final = 12  # of the place in a message; outer steps are left out


class ValueRefused(Exception):
    """A value has no stored form; `place` is its place inside the whole."""

    def __init__(self, why: str) -> None:
        """Start with an empty place; every container around the value adds its step."""
        super().__init__(why)
        self.why = why
        self._steps: list[str] = []

    def step(self, step: str) -> ValueRefused:
        """Add the step from a container to the value."""
        self._steps.append(step)
        return self

    @property
    def place(self) -> str:
        """The place, such as `.field[3]`: empty for the whole value; only its end if it is long."""
        return ("..." if len(self._steps) > MAX_PLACE_STEPS else "") + "".join(
            reversed(self._steps[:MAX_PLACE_STEPS])
        )


class Encoder:
    """Encodes one value.

    `canonical` gives equal dicts equal forms, whatever the order of their keys.
    """

    __slots__ = ("_values_left", "_writer_of", "canonical", "depth")

    def __init__(self, writer_of: Callable[[object], Writer], *, canonical: bool) -> None:
        """Start at depth 0; the number of values is limited by the size limit."""
        self._writer_of = writer_of
        self._values_left = MAX_BYTES // 2
        self.canonical = canonical
        self.depth = 0

    def form(self, value: object) -> object:
        """The form of `value` in the JSON text."""
        leaf = _leaf(value)
        if leaf is not None or value is None:
            return leaf
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueRefused(f"is nested more than {MAX_DEPTH} deep, or contains itself")
        form = self._writer_of(value)(value, self)
        self.depth -= 1
        return form

    def each(self, values: Iterable[object]) -> list[object]:
        """The forms of a sequence."""
        forms: list[object] = []
        try:
            for value in values:
                forms.append(self.form(value))  # noqa: PERF401 - a refusal needs its length
        except ValueRefused as refused:
            raise refused.step(f"[{len(forms)}]") from None
        self._count_values(len(forms))
        return forms

    def fields(self, state: Mapping[str, object], step: str = ".{}") -> dict[str, object]:
        """The forms of named fields; `step` is the format of a field's name in a place."""
        forms: dict[str, object] = {}
        for name, value in state.items():
            try:
                forms[name] = self.form(value)
            except ValueRefused as refused:
                raise refused.step(step.format(name)) from None
        self._count_values(len(forms))
        return forms

    def _count_values(self, values: int) -> None:
        """Refuse a value early that contains the same part so often that encoding takes hours."""
        self._values_left -= values + 1
        if self._values_left < 0:
            raise ValueRefused(f"is larger than {MAX_BYTES >> 20} MiB")


def tagged(tag: str, value: object, **more: object) -> Form:
    """The form of a value of a type that JSON doesn't have."""
    return {TAG: tag, "v": value, **more}


def _leaf(value: object) -> object:
    kind: type = type(value)
    scalar: Any = value
    if kind is str:
        if is_text(scalar):
            return value
        return tagged("str", scalar.encode("unicode_escape").decode("ascii"))
    if kind is bool:
        return value
    if kind is int:
        return value if scalar.bit_length() <= MAX_INT_BITS else tagged("int", hex(scalar))
    if kind is float:
        return value if math.isfinite(scalar) else tagged("float", repr(scalar))
    return None
