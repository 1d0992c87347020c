"""The terms of an expression, each of which computes its value.

They read plain data only: no attributes, no calls.
"""

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from abreast.jobs.files.filters import FILTERS, is_among
from abreast.jobs.files.fuel import ExpressionFailed, Fuel, Value, checked_text, kind_of

_NUMBER_LIMIT: Final = 2**63  # arithmetic is refused with numbers of at least this size


@dataclass(frozen=True, slots=True)
class NameScope:
    """What a term is evaluated with: the names, and the steps that are left."""

    names: Mapping[str, Value]
    fuel: Fuel


@dataclass(frozen=True, slots=True)
class Term(ABC):
    """A part of an expression; the fields of its dataclass hold the terms inside it."""

    @abstractmethod
    def value(self, scope: NameScope) -> Value:
        """Return its value with these names; ExpressionFailed if it has none."""

    def parts(self) -> "Iterator[Term]":
        """Return the terms directly inside it."""
        return _terms_in(tuple(getattr(self, one.name) for one in fields(self)))


def _terms_in(value: object) -> Iterator[Term]:
    if isinstance(value, Term):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _terms_in(one)


@dataclass(frozen=True, slots=True)
class Literal(Term):
    """A constant in the expression."""

    held: Value

    def value(self, scope: NameScope) -> Value:
        """Return the constant."""
        scope.fuel.burn()
        return self.held


@dataclass(frozen=True, slots=True)
class Path(Term):
    """A name and the keys after it; null where a key does not exist."""

    keys: tuple[str, ...]

    def value(self, scope: NameScope) -> Value:
        """Return the value at the path, or null."""
        scope.fuel.burn(len(self.keys))
        found: Value = scope.names
        for key in self.keys:
            found = look_up(found, key)
        return found


def look_up(value: Value, key: Value) -> Value:
    """Return the value of a key of a mapping or of an index of a list; null if there is none.

    It never reads an attribute of an object.
    """
    if isinstance(value, Mapping) and isinstance(key, str | int | float):
        return value.get(key)
    is_place = (
        isinstance(value, list | tuple) and isinstance(key, int) and not isinstance(key, bool)
    )
    return value[key] if is_place and -len(value) <= key < len(value) else None


@dataclass(frozen=True, slots=True)
class ItemTerm(Term):
    """`of[key]`."""

    of: Term
    key: Term

    def value(self, scope: NameScope) -> Value:
        """Return the value at the key, or null."""
        scope.fuel.burn()
        return look_up(self.of.value(scope), self.key.value(scope))


@dataclass(frozen=True, slots=True)
class ListTerm(Term):
    """A list of terms."""

    terms: tuple[Term, ...]

    def value(self, scope: NameScope) -> list[Value]:
        """Return their values."""
        scope.fuel.burn()
        return [term.value(scope) for term in self.terms]


@dataclass(frozen=True, slots=True)
class MappingTerm(Term):
    """A mapping of terms; its keys are texts."""

    terms: tuple[tuple[Term, Term], ...]

    def value(self, scope: NameScope) -> dict[str, Value]:
        """Return the mapping of their values."""
        scope.fuel.burn()
        pairs = [(key.value(scope), term.value(scope)) for key, term in self.terms]
        if odd := [key for key, _ in pairs if not isinstance(key, str)]:
            raise ExpressionFailed(f"the key of a mapping must be a text, not {kind_of(odd[0])}")
        return dict(pairs)


@dataclass(frozen=True, slots=True)
class BooleanTerm(Term):
    """`left and right`, `left or right`; the right side is evaluated only if it is needed."""

    left: Term
    right: Term
    either: bool = False

    def value(self, scope: NameScope) -> bool:
        """Return whether both hold, or either."""
        scope.fuel.burn()
        left = bool(self.left.value(scope))
        return left if left is self.either else bool(self.right.value(scope))


@dataclass(frozen=True, slots=True)
class Not(Term):
    """`not of`."""

    of: Term

    def value(self, scope: NameScope) -> bool:
        """Return whether it does not hold."""
        scope.fuel.burn()
        return not self.of.value(scope)


@dataclass(frozen=True, slots=True)
class ChoiceTerm(Term):
    """`then if test else other`."""

    test: Term
    then: Term
    other: Term

    def value(self, scope: NameScope) -> Value:
        """Return the value of the side that the test chooses."""
        scope.fuel.burn()
        return self.then.value(scope) if self.test.value(scope) else self.other.value(scope)


ORDERINGS: Final[Mapping[str, Callable[[Value, Value], bool]]] = {
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}


@dataclass(frozen=True, slots=True)
class ComparisonTerm(Term):
    """`left <how> right`; values that can't be ordered are neither less nor more."""

    how: str
    left: Term
    right: Term

    def value(self, scope: NameScope) -> bool:
        """Return whether the comparison holds."""
        left, right = self.left.value(scope), self.right.value(scope)
        if self.how in {"in", "notin"}:
            return _is_in(scope.fuel, left, right) is (self.how == "in")
        scope.fuel.burn_value(left)
        scope.fuel.burn_value(right)
        return (
            _is_ordered(self.how, left, right)
            if self.how in ORDERINGS
            else bool(left == right) is (self.how == "eq")
        )


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


def _is_ordered(how: str, left: Value, right: Value) -> bool:
    numbers = _to_number(left), _to_number(right)
    if all(isinstance(number, int | float) for number in numbers):
        left, right = numbers
    try:
        return bool(ORDERINGS[how](left, right))
    except TypeError:
        return False


def _to_number(value: Value) -> Value:
    """Return the number that a text spells, or the value as it is."""
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
class ArithmeticTerm(Term):
    """`left + right`, `-`, `*`, `/`, `//` or `%` of two numbers.

    `+` also joins two texts or two lists.
    """

    how: str
    left: Term
    right: Term

    def value(self, scope: NameScope) -> Value:
        """Return the result."""
        left, right = self.left.value(scope), self.right.value(scope)
        scope.fuel.burn()
        sign, apply = ARITHMETIC[self.how]
        if self.how == "Add" and isinstance(left, str) and isinstance(right, str):
            scope.fuel.burn_text(len(left) + len(right))
            return checked_text(left + right)
        if self.how == "Add" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
            scope.fuel.burn(len(left) + len(right))
            return [*left, *right]
        try:
            return checked_number(apply(operand(left, sign), operand(right, sign)))
        except ZeroDivisionError:
            raise ExpressionFailed(f"{sign}: nothing can be divided by zero") from None


def operand(value: Value, sign: str) -> int | float:
    """Return the value if arithmetic is allowed with it, else raise ExpressionFailed."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionFailed(f"{sign}: it takes numbers, not {kind_of(value)}")
    return checked_number(value)


def checked_number(value: float) -> int | float:
    """Return the number; ExpressionFailed if it is too large for arithmetic."""
    if (isinstance(value, int) and abs(value) >= _NUMBER_LIMIT) or not math.isfinite(value):
        raise ExpressionFailed("a number is too large to reckon with")
    return value


@dataclass(frozen=True, slots=True)
class SignedTerm(Term):
    """`-of` or `+of`."""

    sign: str
    of: Term

    def value(self, scope: NameScope) -> int | float:
        """Return the number with its sign."""
        scope.fuel.burn()
        number = operand(self.of.value(scope), self.sign)
        return -number if self.sign == "-" else number


@dataclass(frozen=True, slots=True)
class FilterTerm(Term):
    """`of | name(arguments)`."""

    name: str
    of: Term
    arguments: tuple[Term, ...]

    def value(self, scope: NameScope) -> Value:
        """Return the result of the filter."""
        scope.fuel.burn()
        values = [term.value(scope) for term in (self.of, *self.arguments)]
        return FILTERS[self.name].apply(scope.fuel, *values)
