"""Changes recorded values a little, within what all of them have in common.

A function may rely on what its tests always give it: a list that is sorted, numbers that are not
negative, a graph that names only its own nodes. What holds for every recorded value at a place
holds for what is made of them, so that a counterexample is one that a user would accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

from abreast.core.seeds import derive_seed
from abreast.jobs.candidates.inputs.plain_values import Plain

Pattern: TypeAlias = tuple[str, ...]
_MAPS: Final = frozenset({"dict", "Counter", "OrderedDict", "defaultdict"})
_ROWS: Final = frozenset({"list", "deque"})
_LETTERS: Final = " aZ0.é"
_LONGEST: Final = 40


class Dice:
    """Numbers that look random and are the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._seed, self._thrown = seed, 0

    def below(self, count: int) -> int:
        """One of 0 to count - 1."""
        self._thrown += 1
        return derive_seed(self._seed, str(self._thrown)) % count

    def between(self, least: int, most: int) -> int:
        """One of these and those in between."""
        return least + self.below(most - least + 1)


@dataclass(slots=True)
class ValueFacts:
    """What all values at one place have in common."""

    count: int = 0
    least: float = 0.0
    most: float = 0.0
    letters: set[str] = field(default_factory=set)
    rows: int = 0
    """Lists of two or more that were seen; what follows is known only if there are some."""
    ascending: bool = True
    even: bool = True
    """Their parts are lists of one length."""
    maps: int = 0
    closed: bool = True
    """Of a map: what its values list is among its keys."""


class ValueProfile:
    """The facts of recorded values, place by place."""

    def __init__(self, values: Iterable[Plain]) -> None:
        self._facts: dict[Pattern, ValueFacts] = {}
        for value in values:
            for pattern, part in places(value):
                self._note(self._facts.setdefault(pattern, ValueFacts()), part)

    def at(self, pattern: Pattern) -> ValueFacts:
        """What is known of a place."""
        return self._facts.get(pattern, ValueFacts())

    def _note(self, facts: ValueFacts, part: Plain) -> None:
        if part.kind in {"int", "float"}:
            number = float(min(part.order()[1], 1e300) if part.kind == "int" else part.order()[1])
            facts.least = min(facts.least, number) if facts.count else number
            facts.most = max(facts.most, number) if facts.count else number
        facts.count += 1
        if part.kind == "str":
            facts.letters |= set(part.text)
        if part.kind in _ROWS and len(part.items) > 1:
            facts.rows += 1
            facts.ascending = facts.ascending and _ascends(part)
            facts.even = facts.even and _is_even(part)
        if part.kind in _MAPS and part.items:
            facts.maps += 1
            facts.closed = facts.closed and _is_closed(part)

    def fits(self, value: Plain, *, hull: bool = True) -> bool:
        """Whether a value has what all recorded ones have.

        Without `hull`, numbers may be of another sign.
        """
        for pattern, part in places(value):
            facts = self.at(pattern)
            if (
                hull
                and part.kind in {"int", "float"}
                and facts.count
                and facts.least >= 0 > part.order()[1]
            ):
                return False
            if (
                part.kind in _ROWS
                and facts.rows
                and len(part.items) > 1
                and not _suits(facts, part)
            ):
                return False
            if part.kind in _MAPS and facts.maps and facts.closed and not _is_closed(part):
                return False
            if part.kind in {"set", "frozenset"} or part.kind in _MAPS:
                keys = part.items[::2] if part.kind in _MAPS else part.items
                if len(set(keys)) != len(keys):
                    return False
        return True

    def tidied(self, value: Plain) -> Plain:
        """A value brought nearer to fitting: sorted where all are sorted, each key once."""
        return self._tidy(value, ())

    def _tidy(self, value: Plain, pattern: Pattern) -> Plain:
        items = tuple(self._tidy(part, (*pattern, step)) for step, part in _steps(value))
        facts = self.at(pattern)
        if value.kind in _ROWS and facts.rows and facts.ascending:
            items = tuple(sorted(items, key=Plain.order))
        if value.kind in {"set", "frozenset"}:
            items = tuple(dict.fromkeys(items))
        if value.kind in _MAPS:
            pairs = dict(zip(items[::2], items[1::2], strict=True))
            if facts.maps and facts.closed:
                pairs = {key: _without(one, pairs.keys()) for key, one in pairs.items()}
            items = tuple(part for pair in pairs.items() for part in pair)
        return replace(value, items=items)


def places(value: Plain, pattern: Pattern = ()) -> Iterator[tuple[Pattern, Plain]]:
    """Every part with the kind of place it stands at."""
    yield pattern, value
    for step, part in _steps(value):
        yield from places(part, (*pattern, step))


def _steps(value: Plain) -> Iterator[tuple[str, Plain]]:
    for at, part in enumerate(value.items):
        if value.kind in _MAPS:
            yield "value" if at % 2 else "key", part
        elif value.kind == "instance":
            yield value.items[at - 1].text if at % 2 else "name", part
        elif value.kind in _ROWS or value.kind in {"set", "frozenset"}:
            yield "*", part
        else:
            yield str(at), part


def _ascends(value: Plain) -> bool:
    if len({one.kind for one in value.items}) > 1:
        return False
    keys = [one.order() for one in value.items]
    return all(one <= other for one, other in pairwise(keys))


def _is_even(value: Plain) -> bool:
    return len({len(one.items) if one.kind in _ROWS else -1 for one in value.items}) <= 1


def _is_closed(value: Plain) -> bool:
    keys = set(value.items[::2])
    listed = [one for one in value.items[1::2] if one.kind in {*_ROWS, *_MAPS, "set", "tuple"}]
    return bool(listed) and all(set(_members(one)) <= keys for one in listed)


def _members(value: Plain) -> tuple[Plain, ...]:
    return value.items[::2] if value.kind in _MAPS else value.items


def _without(value: Plain, keys: Iterable[Plain]) -> Plain:
    kept = set(keys)
    if value.kind in _MAPS:
        pairs = zip(value.items[::2], value.items[1::2], strict=True)
        return replace(
            value, items=tuple(part for key, one in pairs if key in kept for part in (key, one))
        )
    return replace(value, items=tuple(one for one in value.items if one in kept))


def _suits(facts: ValueFacts, part: Plain) -> bool:
    if facts.ascending and not _ascends(part):
        return False
    return not facts.even or _is_even(part)


# --- one change


def mutated(value: Plain, profile: ValueProfile, dice: Dice) -> Plain:
    """The value with one part changed; the state of instances stays as it is."""
    spots = [
        (path, pattern, part)
        for (path, part), (pattern, _) in _spots(value)
        if part.kind in _CHANGES
    ]
    if not spots:
        return value
    path, pattern, part = spots[dice.below(len(spots))]
    return profile.tidied(value.put(path, _CHANGES[part.kind](part, profile.at(pattern), dice)))


def _spots(value: Plain) -> Iterator[tuple[tuple[tuple[int, ...], Plain], tuple[Pattern, Plain]]]:
    whole = zip(value.walk(), places(value), strict=True)
    return (one for one in whole if "name" not in one[1][0])


def _int(value: Plain, facts: ValueFacts, dice: Dice) -> Plain:
    number = int(value.text, 16)
    most = (10, max(10, int(min(facts.most, 1e6)) * 2))[dice.below(2)]
    least = 0 if facts.count and facts.least >= 0 else -most
    choices = (
        number + 1,
        number - 1,
        0,
        1,
        number // 2,
        dice.between(least, most),
        dice.between(least, most),
    )
    picked = choices[dice.below(len(choices))]
    return Plain("int", f"{max(picked, least):x}")


def _float(value: Plain, facts: ValueFacts, dice: Dice) -> Plain:
    number = float.fromhex(value.text)
    least = 0.0 if facts.count and facts.least >= 0 else float("-inf")
    scattered = dice.between(-2_000, 2_000) / 16
    choices = (0.0, 1.0, -number, number / 2, number + 0.1, number * 3, scattered, round(number, 0))
    picked = choices[dice.below(len(choices))]
    return Plain("float", float(picked if picked >= least or picked != picked else -picked).hex())  # noqa: PLR0124


def _letter(facts: ValueFacts, dice: Dice) -> str:
    known = "".join(sorted(facts.letters))
    letters = known * 3 + _LETTERS
    return letters[dice.below(len(letters))]


def _str(value: Plain, facts: ValueFacts, dice: Dice) -> Plain:
    text, at = value.text, dice.below(len(value.text) + 1)
    letter = _letter(facts, dice)
    choices = (
        "",
        text[:at] + letter + text[at:],
        text[:at] + text[at + 1 :],
        text[:at] + letter + text[at + 1 :],
        text[at:] + text[:at],
        (text + letter + text)[: _LONGEST * 2],
        text[:at],
        text[::-1],
        text.swapcase(),
        letter * dice.between(1, 4),
    )
    return Plain("str", choices[dice.below(len(choices))])


def _bytes(value: Plain, facts: ValueFacts, dice: Dice) -> Plain:
    changed = _str(value, facts, dice).text.encode("latin-1", "replace").decode("latin-1")
    return replace(value, text=changed)


def _row(value: Plain, _: ValueFacts, dice: Dice) -> Plain:
    items = value.items
    if not items:
        return value
    at, other = dice.below(len(items)), dice.below(len(items))
    swapped = list(items)
    swapped[at], swapped[other] = swapped[other], swapped[at]
    choices = (
        (),
        items[:at] + items[at + 1 :],
        (*items[:at], items[other], *items[at:]),
        tuple(swapped),
        items[::-1],
        items[: at + 1],
        items[at:],
        (items + items)[:_LONGEST],
        (items[at],) * dice.between(1, 3),
    )
    return replace(value, items=choices[dice.below(len(choices))])


def _map(value: Plain, _: ValueFacts, dice: Dice) -> Plain:
    pairs = list(zip(value.items[::2], value.items[1::2], strict=True))
    if not pairs:
        return value
    at, other = dice.below(len(pairs)), dice.below(len(pairs))
    crossed = list(pairs)
    crossed[at] = (pairs[at][0], pairs[other][1])
    choices: tuple[list[tuple[Plain, Plain]], ...] = (
        [],
        pairs[:at] + pairs[at + 1 :],
        pairs[::-1],
        crossed,
        pairs[: at + 1],
        pairs[at:] + pairs[:at],
    )
    return replace(
        value, items=tuple(part for pair in choices[dice.below(len(choices))] for part in pair)
    )


_CHANGES: Final[dict[str, Callable[[Plain, ValueFacts, Dice], Plain]]] = {
    "bool": lambda value, _, __: Plain("bool", "False" if value.text == "True" else "True"),
    "int": _int,
    "float": _float,
    "str": _str,
    "bytes": _bytes,
    "bytearray": _bytes,
    **dict.fromkeys(("list", "deque", "set", "frozenset"), _row),
    **dict.fromkeys(sorted(_MAPS), _map),
}


# --- smaller ones


def smaller(value: Plain) -> Iterator[Plain]:
    """Values that are a little, or much, less than this one, the smallest first."""
    for path, part in value.walk():
        for one in _less(part):
            yield value.put(path, one)


def _less(part: Plain) -> Iterator[Plain]:
    if part.kind == "int" and part.text not in {"0", "1"}:
        number = int(part.text, 16)
        yield from (
            Plain("int", f"{one:x}")
            for one in {0, 1, number // 2, number - (1 if number > 0 else -1)}
        )
    elif part.kind == "float" and float.fromhex(part.text) not in {0.0, 1.0}:
        held = float.fromhex(part.text)
        whole = [float(int(held))] if abs(held) < 1e9 else []  # noqa: PLR2004 - NaN and infinity are left out
        yield from (Plain("float", one.hex()) for one in [0.0, 1.0, *whole] if one != held)
    elif part.kind in {"str", "bytes", "bytearray"}:
        yield from (replace(part, text=text) for text in _cuts(part.text))
        if set(part.text) - {"a"}:
            yield from (
                replace(part, text=part.text.replace(one, "a"))
                for one in sorted(set(part.text))[:4]
            )
    elif part.kind in {"list", "deque", "set", "frozenset"}:
        yield from (replace(part, items=items) for items in _cuts(part.items))
    elif part.kind in _MAPS:
        pairs = tuple(zip(part.items[::2], part.items[1::2], strict=True))
        for kept in _cuts(pairs):
            yield replace(part, items=tuple(one for pair in kept for one in pair))


_Row = TypeVar("_Row", str, tuple[Plain, ...], tuple[tuple[Plain, Plain], ...])


def _cuts(row: _Row) -> Iterator[_Row]:
    half = len(row) // 2
    if row:
        yield row[:0]
    if half:
        yield row[:half]
        yield row[half:]
    for at in range(min(len(row), 12)):
        yield row[:at] + row[at + 1 :]
