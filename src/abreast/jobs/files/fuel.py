"""Bounds the cost of evaluating expressions; the errors of invalid and failed ones."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Value: TypeAlias = Any
"""The values of workflows: null, booleans, numbers, texts, lists and mappings of these."""

MAX_EXPRESSION_LENGTH: Final = 10_000  # characters
MAX_TEXT_LENGTH: Final = 8 * 2**20  # characters of a result
MAX_TREE_DEPTH: Final = 50  # levels of terms in an expression
MAX_VALUE_DEPTH: Final = 100  # levels of lists and mappings in a value
MAX_BLOCKS: Final = 10_000  # `{{ }}` in one text
MAX_TOKENS: Final = 2_000  # in one expression
MAX_STEPS: Final = 5_000_000  # of one evaluation

_SCALARS: Final = (str, int, float, type(None))
_CHARACTERS_PER_STEP: Final = 64


class ExpressionInvalid(ValueError):
    """An expression that can't be parsed or is not allowed, found at load.

    `at` is the offset in the text.
    """

    def __init__(self, sentence: str, at: int = 0) -> None:
        super().__init__(sentence)
        self.at = at


class ExpressionFailed(ValueError):
    """An expression that has no value here: a filter misused, a result too large."""


class Fuel:
    """The steps that one evaluation may still take; ExpressionFailed when they are used up."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def burn(self, steps: int = 1) -> None:
        """Take some steps."""
        self.left -= steps
        if self.left < 0:
            raise ExpressionFailed("the expression takes too many steps")

    def burn_text(self, size: int) -> None:
        """Take the steps for reading a text: one per 64 characters."""
        self.burn(1 + size // _CHARACTERS_PER_STEP)

    def burn_value(self, value: Value) -> int:
        """Take a step for each part of a value, at any depth.

        Returns the smallest possible length of its text.
        """
        size = 0
        waiting = [([value], 0)]
        while waiting:
            level, depth = waiting.pop()
            if depth > MAX_VALUE_DEPTH:
                raise ExpressionFailed(f"a value is nested more than {MAX_VALUE_DEPTH} levels deep")
            # The steps for a whole level are taken before its parts are visited.
            self.burn(len(level))
            letters = sum(len(one) for one in level if isinstance(one, str))
            self.burn_text(letters)
            size += len(level) + letters
            waiting += [(_parts(one), depth + 1) for one in level if not isinstance(one, _SCALARS)]
        return size


def _parts(value: Value) -> list[Value]:
    held = list(value) if isinstance(value, list | tuple | Mapping) else []
    return held + list(value.values()) if isinstance(value, Mapping) else held


def text_of(value: Value, fuel: Fuel) -> str:
    """Return a value as it is written into a text: empty for null, otherwise Python's str()."""
    return "" if value is None else python_text(value, fuel)


def python_text(value: Value, fuel: Fuel) -> str:
    """Return a value as Python's str() writes it; ExpressionFailed if that is too long."""
    if isinstance(value, str):
        return value
    check_size(fuel.burn_value(value))
    try:
        return checked_text(str(value))
    except ValueError as error:
        raise ExpressionFailed(str(error)) from error  # a number of thousands of digits


def checked_text(text: str) -> str:
    """Return the text; ExpressionFailed if it is too long."""
    check_size(len(text))
    return text


def check_size(size: int) -> None:
    """Raise ExpressionFailed if a text of that size would be too long."""
    if size > MAX_TEXT_LENGTH:
        raise ExpressionFailed(
            f"the text of an expression is longer than {MAX_TEXT_LENGTH} characters"
        )


def kind_of(value: Value) -> str:
    """Return the kind of a value, in words for a message."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (type(None), "null"),
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "a text"),
        ((list, tuple), "a list"),
        (Mapping, "a mapping"),
    )
    return next((words for kind, words in kinds if isinstance(value, kind)), type(value).__name__)
