"""What an expression may cost, and what it says when it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Value: TypeAlias = Any
"""What workflows hold: null, booleans, numbers, texts, lists and mappings of these."""

LONGEST_EXPRESSION: Final = 10_000
LARGEST_TEXT: Final = 8 * 2**20
DEEPEST_TREE: Final = 50
DEEPEST_VALUE: Final = 100
MOST_BLOCKS: Final = 10_000
MOST_TOKENS: Final = 2_000
MOST_STEPS: Final = 5_000_000

_SCALARS: Final = (str, int, float, type(None))
_CHARACTERS_PER_STEP: Final = 64


class ExpressionInvalid(ValueError):
    """An expression that can't be read or is not allowed, found at load.

    `at` is the place in the text.
    """

    def __init__(self, sentence: str, at: int = 0) -> None:
        super().__init__(sentence)
        self.at = at


class ExpressionFailed(ValueError):
    """An expression that has no value here: a filter misused, a result too large."""


class Fuel:
    """The steps that one evaluation may still take; ExpressionFailed when they are used up."""

    __slots__ = ("left",)

    def __init__(self, steps: int = MOST_STEPS) -> None:
        self.left = steps

    def burn(self, steps: int = 1) -> None:
        """Take some steps."""
        self.left -= steps
        if self.left < 0:
            raise ExpressionFailed("the expression takes too many steps")

    def burn_text(self, size: int) -> None:
        """Take the steps that going through a text costs."""
        self.burn(1 + size // _CHARACTERS_PER_STEP)

    def burn_value(self, value: Value) -> int:
        """Take a step for each part of a value, however it is nested.

        Gives the least that its text can be long.
        """
        size = 0
        waiting = [([value], 0)]
        while waiting:
            level, depth = waiting.pop()
            if depth > DEEPEST_VALUE:
                raise ExpressionFailed(f"a value is nested more than {DEEPEST_VALUE} levels deep")
            # A whole level is paid for before what is in it is looked at.
            self.burn(len(level))
            letters = sum(len(one) for one in level if isinstance(one, str))
            self.burn_text(letters)
            size += len(level) + letters
            waiting += [(_parts(one), depth + 1) for one in level if not isinstance(one, _SCALARS)]
        return size


def _parts(value: Value) -> list[Value]:
    if isinstance(value, Mapping):
        return [*value, *value.values()]
    return list(value) if isinstance(value, list | tuple) else []


def text_of(value: Value, fuel: Fuel) -> str:
    """A value within a text: nothing for null, otherwise as Python writes it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return python_text(value, fuel)


def python_text(value: Value, fuel: Fuel) -> str:
    """A value as Python's str() writes it, if that is not too long."""
    if isinstance(value, str):
        return value
    check_size(fuel.burn_value(value))
    try:
        return checked_text(str(value))
    except ValueError as error:
        raise ExpressionFailed(str(error)) from error  # a number of thousands of digits


def checked_text(text: str) -> str:
    """The text, or ExpressionFailed when it is too long."""
    check_size(len(text))
    return text


def check_size(size: int) -> None:
    """ExpressionFailed when a text would be too long."""
    if size > LARGEST_TEXT:
        raise ExpressionFailed(
            f"the text of an expression is longer than {LARGEST_TEXT} characters"
        )


def kind_of(value: Value) -> str:
    """What a value is, in words for a sentence."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (type(None), "null"),
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "a text"),
        ((list, tuple), "a list"),
        (Mapping, "a mapping"),
    )
    return next((words for kind, words in kinds if isinstance(value, kind)), type(value).__name__)
