"""The parts of an expression, each of which knows its value.

Nothing in them reaches beyond plain data.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from abreast.jobs.files.filters import FILTERS, is_among
from abreast.jobs.files.fuel import ExpressionFailed, Fuel, Value, checked_text, kind_of

_LARGEST_NUMBER: Final = 2**63


@dataclass(frozen=True, slots=True)
class NameScope:
    """What a term is evaluated with: the names there are, and the steps that are left."""

    names: Mapping[str, Value]
    fuel: Fuel


class Term(Protocol):
    """A part of an expression."""

    def value(self, frame: NameScope) -> Value:
        """What it is with these names; ExpressionFailed if it is nothing."""
        ...

    def parts(self) -> Iterator[Term]:
        """The terms it is made of."""
        ...


class _Leaf:
    __slots__ = ()

    def parts(self) -> Iterator[Term]:
        return iter(())


@dataclass(frozen=True, slots=True)
class Literal(_Leaf):
    """A value that is written down."""

    held: Value

    def value(self, frame: NameScope) -> Value:
        """The value itself."""
        frame.fuel.burn()
        return self.held


@dataclass(frozen=True, slots=True)
class Path(_Leaf):
    """A name and the keys after it; null where there is nothing."""

    keys: tuple[str, ...]

    def value(self, frame: NameScope) -> Value:
        """What is found there."""
        frame.fuel.burn(len(self.keys))
        found: Value = frame.names
        for key in self.keys:
            found = look_up(found, key)
        return found


def look_up(value: Value, key: Value) -> Value:
    """A key of a mapping or a place in a list, null where there is none.

    Never an attribute of an object.
    """
    if isinstance(value, Mapping) and isinstance(key, str | int | float):
        return value.get(key)
    is_place = (
        isinstance(value, list | tuple) and isinstance(key, int) and not isinstance(key, bool)
    )
    if is_place and -len(value) <= key < len(value):
        return value[key]
    return None


@dataclass(frozen=True, slots=True)
class ItemTerm:
    """`of[key]`."""

    of: Term
    key: Term

    def value(self, frame: NameScope) -> Value:
        """What is found there, or null."""
        frame.fuel.burn()
        return look_up(self.of.value(frame), self.key.value(frame))

    def parts(self) -> Iterator[Term]:
        """Both sides."""
        yield self.of
        yield self.key


@dataclass(frozen=True, slots=True)
class Several:
    """A list of terms."""

    terms: tuple[Term, ...]

    def value(self, frame: NameScope) -> list[Value]:
        """Their values."""
        frame.fuel.burn()
        return [term.value(frame) for term in self.terms]

    def parts(self) -> Iterator[Term]:
        """Each of them."""
        return iter(self.terms)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A mapping of terms; its keys are texts."""

    terms: tuple[tuple[Term, Term], ...]

    def value(self, frame: NameScope) -> dict[str, Value]:
        """Their values."""
        frame.fuel.burn()
        made = [(key.value(frame), term.value(frame)) for key, term in self.terms]
        if odd := [key for key, _ in made if not isinstance(key, str)]:
            raise ExpressionFailed(f"the key of a mapping must be a text, not {kind_of(odd[0])}")
        return dict(made)

    def parts(self) -> Iterator[Term]:
        """Keys and values."""
        for pair in self.terms:
            yield from pair


@dataclass(frozen=True, slots=True)
class Both:
    """`left and right`, `left or right`: true or false, and the right side only if it is needed."""

    left: Term
    right: Term
    either: bool = False

    def value(self, frame: NameScope) -> bool:
        """Whether both hold, or either."""
        frame.fuel.burn()
        left = bool(self.left.value(frame))
        return left if left is self.either else bool(self.right.value(frame))

    def parts(self) -> Iterator[Term]:
        """Both sides."""
        yield self.left
        yield self.right


@dataclass(frozen=True, slots=True)
class Not:
    """`not of`."""

    of: Term

    def value(self, frame: NameScope) -> bool:
        """Whether it does not hold."""
        frame.fuel.burn()
        return not self.of.value(frame)

    def parts(self) -> Iterator[Term]:
        """What is denied."""
        yield self.of


@dataclass(frozen=True, slots=True)
class ChoiceTerm:
    """`then if test else other`."""

    test: Term
    then: Term
    other: Term

    def value(self, frame: NameScope) -> Value:
        """The value of the side that is chosen."""
        frame.fuel.burn()
        return self.then.value(frame) if self.test.value(frame) else self.other.value(frame)

    def parts(self) -> Iterator[Term]:
        """The question and both answers."""
        yield self.test
        yield self.then
        yield self.other


ORDERINGS: Final[Mapping[str, Callable[[Value, Value], bool]]] = {
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Compared:
    """`left <how> right`; things that can't be compared are neither more nor less."""

    how: str
    left: Term
    right: Term

    def value(self, frame: NameScope) -> bool:
        """Whether it is so."""
        left, right = self.left.value(frame), self.right.value(frame)
        if self.how in {"in", "notin"}:
            return _is_in(frame.fuel, left, right) is (self.how == "in")
        if self.how in {"eq", "ne"}:
            return _are_equal(frame.fuel, left, right) is (self.how == "eq")
        return _is_ordered(frame.fuel, self.how, left, right)

    def parts(self) -> Iterator[Term]:
        """Both sides."""
        yield self.left
        yield self.right


def _is_in(fuel: Fuel, wanted: Value, among: Value) -> bool:
    fuel.burn()
    if isinstance(among, list | tuple):
        return is_among(fuel, among, wanted)
    if isinstance(among, str):
        fuel.burn_text(len(among))
        return isinstance(wanted, str) and wanted in among
    return (
        isinstance(among, Mapping)
        and not isinstance(wanted, Mapping | list | tuple)
        and wanted in among
    )


def _are_equal(fuel: Fuel, left: Value, right: Value) -> bool:
    fuel.burn_value(left)
    fuel.burn_value(right)
    return bool(left == right)


def _is_ordered(fuel: Fuel, how: str, left: Value, right: Value) -> bool:
    fuel.burn_value(left)
    fuel.burn_value(right)
    numbers = _number(left), _number(right)
    if all(isinstance(number, int | float) for number in numbers):
        left, right = numbers
    try:
        return bool(ORDERINGS[how](left, right))
    except TypeError:
        return False


def _number(value: Value) -> Value:
    """The number that a text spells, or the value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if "." in value else int(value)
    except ValueError:
        return value


ARITHMETIC: Final[Mapping[str, tuple[str, Callable[[Value, Value], Value]]]] = {
    "Add": ("+", operator.add),
    "Sub": ("-", operator.sub),
    "Mul": ("*", operator.mul),
    "Div": ("/", operator.truediv),
    "FloorDiv": ("//", operator.floordiv),
    "Mod": ("%", operator.mod),
}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left + right` and its like: of two numbers.

    `+` also puts two texts or two lists together.
    """

    how: str
    left: Term
    right: Term

    def value(self, frame: NameScope) -> Value:
        """The result."""
        left, right = self.left.value(frame), self.right.value(frame)
        frame.fuel.burn()
        sign, apply = ARITHMETIC[self.how]
        if self.how == "Add" and isinstance(left, str) and isinstance(right, str):
            frame.fuel.burn_text(len(left) + len(right))
            return checked_text(left + right)
        if self.how == "Add" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
            frame.fuel.burn(len(left) + len(right))
            return [*left, *right]
        try:
            return checked_number(apply(operand(left, sign), operand(right, sign)))
        except ZeroDivisionError:
            raise ExpressionFailed(f"{sign}: nothing can be divided by zero") from None

    def parts(self) -> Iterator[Term]:
        """Both sides."""
        yield self.left
        yield self.right


def operand(value: Value, sign: str) -> int | float:
    """A number that may be reckoned with."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionFailed(f"{sign}: it takes numbers, not {kind_of(value)}")
    return checked_number(value)


def checked_number(value: float) -> int | float:
    """The number, or ExpressionFailed when it is too large to reckon with."""
    if (isinstance(value, int) and abs(value) >= _LARGEST_NUMBER) or not math.isfinite(value):
        raise ExpressionFailed("a number is too large to reckon with")
    return value


@dataclass(frozen=True, slots=True)
class Signed:
    """`-of` or `+of`."""

    sign: str
    of: Term

    def value(self, frame: NameScope) -> int | float:
        """The number with its sign."""
        frame.fuel.burn()
        number = operand(self.of.value(frame), self.sign)
        return -number if self.sign == "-" else number

    def parts(self) -> Iterator[Term]:
        """The number."""
        yield self.of


@dataclass(frozen=True, slots=True)
class Filtered:
    """`of | name(arguments)`."""

    name: str
    of: Term
    arguments: tuple[Term, ...]

    def value(self, frame: NameScope) -> Value:
        """What the filter makes of it."""
        frame.fuel.burn()
        made = [term.value(frame) for term in (self.of, *self.arguments)]
        return FILTERS[self.name].apply(frame.fuel, *made)

    def parts(self) -> Iterator[Term]:
        """What is filtered, and the arguments."""
        yield self.of
        yield from self.arguments
