"""Frozen records that are quick to make: they are written while open, and frozen afterwards."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import TypeVar

T = TypeVar("T")


def quickly(kind: type[T]) -> type[T]:
    """Let a frozen, slotted dataclass be made in half the time or less: 0.46 us against 1.24 for nine fields.

    A frozen one sets its fields one by one through `object.__setattr__`. Here it is for that moment of an open class
    with the same slots, whose fields are set as any other's.

        @quickly
        @dataclass(frozen=True, slots=True)
        class Reply: ...
    """
    twin = type(f"Open{kind.__name__}", (), {"__slots__": vars(kind)["__slots__"]})
    known: dict[str, object] = {"put": object.__setattr__, "Open": twin, "Frozen": kind, "Missing": MISSING}
    parts: tuple[Field[object], ...] = fields(kind)  # type: ignore[arg-type]
    asked = ", ".join(_parameter(part, known) for part in parts)
    lines = [f"def __init__(self, {asked}):", 'put(self, "__class__", Open)']
    lines += [f"self.{part.name} = {_value(part)}" for part in parts]
    lines.append("self.__class__ = Frozen")
    exec("\n    ".join(lines), known)  # noqa: S102 - as dataclasses make theirs
    known["__init__"].__wrapped__ = vars(kind)["__init__"]  # type: ignore[attr-defined] # its signature
    setattr(kind, "__init__", known["__init__"])  # noqa: B010 - not an assignment that mypy could follow
    return kind


def _parameter(part: Field[object], known: dict[str, object]) -> str:
    if part.default is not MISSING:
        known[f"default_{part.name}"] = part.default
        return f"{part.name}=default_{part.name}"
    if part.default_factory is not MISSING:
        known[f"make_{part.name}"] = part.default_factory
        return f"{part.name}=Missing"
    return part.name


def _value(part: Field[object]) -> str:
    if part.default_factory is MISSING:
        return part.name
    return f"make_{part.name}() if {part.name} is Missing else {part.name}"
