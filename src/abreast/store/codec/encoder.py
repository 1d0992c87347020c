"""The walk through a value on its way to text: how deep, how much, and where it was when it had to refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from abreast.store.codec.codec import MAX_BYTES, MAX_DEPTH, MAX_INT_BITS, TAG, is_text

Form: TypeAlias = dict[str, Any]
"""A tagged object: the stored form of something that JSON has no word for."""

Writer: TypeAlias = "Callable[[Any, Encoder], object]"

_STEPS: Final = 12


class ValueRefused(Exception):
    """A value has no stored form; `place` is where inside the whole it sits."""

    def __init__(self, why: str) -> None:
        """Start at the value itself; every container on the way out adds its step."""
        super().__init__(why)
        self.why = why
        self._steps: list[str] = []

    def step(self, step: str) -> ValueRefused:
        """Say one step more of the way to the value."""
        self._steps.append(step)
        return self

    @property
    def place(self) -> str:
        """Such as `.field[3]`; empty for the whole value, and only its end when it is a long way down."""
        return ("..." if len(self._steps) > _STEPS else "") + "".join(
            reversed(self._steps[:_STEPS])
        )


class Encoder:
    """One walk through a value.

    `canonical` gives equal dicts equal forms, whatever the order of their keys.
    """

    __slots__ = ("_room", "_writer_of", "canonical", "depth")

    def __init__(self, writer_of: Callable[[object], Writer], *, canonical: bool) -> None:
        """Start at the top, with room for as many values as the size limit has."""
        self._writer_of = writer_of
        self._room = MAX_BYTES // 2
        self.canonical = canonical
        self.depth = 0

    def form(self, value: object) -> object:
        """What stands for `value` in the JSON text."""
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
                forms.append(self.form(value))  # noqa: PERF401 - its length is the place of a refusal
        except ValueRefused as refused:
            raise refused.step(f"[{len(forms)}]") from None
        self._take_room(len(forms))
        return forms

    def fields(self, state: Mapping[str, object], step: str = ".{}") -> dict[str, object]:
        """The forms of named fields; `step` is how one is written in a place."""
        forms: dict[str, object] = {}
        for name, value in state.items():
            try:
                forms[name] = self.form(value)
            except ValueRefused as refused:
                raise refused.step(step.format(name)) from None
        self._take_room(len(forms))
        return forms

    def _take_room(self, values: int) -> None:
        """Refuse early what shares its parts so often that it would take hours to write out."""
        self._room -= values + 1
        if self._room < 0:
            raise ValueRefused(f"is larger than {MAX_BYTES >> 20} MiB")


def tagged(tag: str, value: object, **more: object) -> Form:
    """The form of something that JSON has no word for."""
    return {TAG: tag, "v": value, **more}


def _leaf(value: object) -> object:
    """The form of a scalar; None for all else."""
    kind = type(value)
    if kind is str:
        return (
            value
            if is_text(value)
            else tagged("str", value.encode("unicode_escape").decode("ascii"))
        )  # type: ignore[arg-type, attr-defined]
    if kind is bool:
        return value
    if kind is int:
        return value if value.bit_length() <= MAX_INT_BITS else tagged("int", hex(value))  # type: ignore[attr-defined, arg-type]
    if kind is float:
        return value if math.isfinite(value) else tagged("float", repr(value))  # type: ignore[arg-type]
    return None
