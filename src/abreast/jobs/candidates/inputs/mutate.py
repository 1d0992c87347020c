"""Mutates recorded values, and keeps the properties that all of them have.

A function may rely on what its tests always pass: a list that is sorted, numbers that are not
negative, a graph that names only its own nodes. A property of every recorded value at a place is a
property of the mutated ones too, so that a counterexample is one that a user would accept.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Final, TypeAlias, TypeVar

from abreast.core.seeds import derive_seed
from abreast.jobs.candidates.inputs.plain_values import Plain

Pattern: TypeAlias = tuple[str, ...]
_MAPS: Final = frozenset({"dict", "Counter", "OrderedDict", "defaultdict"})
_LISTS: Final = frozenset({"list", "deque"})
_SETS: Final = frozenset({"set", "frozenset"})
_LETTERS: Final = " aZ0.é"
_MAX_MEMBERS: Final = 40  # of a list that is doubled; a text may have twice as many characters


class SeededRandom:
    """Pseudo-random numbers, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._seed, self._drawn = seed, 0

    def below(self, count: int) -> int:
        """Return one of 0 to count - 1."""
        self._drawn += 1
        return derive_seed(self._seed, str(self._drawn)) % count

    def between(self, least: int, most: int) -> int:
        """Return one of `least` to `most`, both included."""
        return least + self.below(most - least + 1)


@dataclass(slots=True)
class ValueFacts:
    """What all values at one place have in common.

    Attributes:
        rows: The number of lists with two or more members; `ascending` and `even` need at least
            one.
        even: All members are lists of one length.
        closed: The members of a map's values are among its keys.
    """

    count: int = 0
    least: float = 0.0
    most: float = 0.0
    letters: set[str] = field(default_factory=set)
    rows: int = 0
    ascending: bool = True
    even: bool = True
    maps: int = 0
    closed: bool = True


class ValueProfile:
    """The facts of recorded values, by place."""

    def __init__(self, values: Iterable[Plain]) -> None:
        self._facts: dict[Pattern, ValueFacts] = {}
        for value in values:
            for pattern, part in places(value):
                self._add(self._facts.setdefault(pattern, ValueFacts()), part)

    def at(self, pattern: Pattern) -> ValueFacts:
        """Return the facts of a place."""
        return self._facts.get(pattern, ValueFacts())

    def _add(self, facts: ValueFacts, part: Plain) -> None:
        if part.kind in {"int", "float"}:
            number = float(min(part.order()[1], 1e300) if part.kind == "int" else part.order()[1])
            facts.least = min(facts.least, number) if facts.count else number
            facts.most = max(facts.most, number) if facts.count else number
        facts.count += 1
        if part.kind == "str":
            facts.letters |= set(part.text)
        if part.kind in _LISTS and len(part.items) > 1:
            facts.rows += 1
            facts.ascending &= _is_ascending(part)
            facts.even &= _is_even(part)
        if part.kind in _MAPS and part.items:
            facts.maps += 1
            facts.closed &= _is_closed(part)

    def fits(self, value: Plain, *, hull: bool = True) -> bool:
        """Whether a value has the properties of all recorded ones.

        Without `hull`, numbers may have the other sign.
        """
        return all(_fits(self.at(pattern), part, hull=hull) for pattern, part in places(value))

    def adjust(self, value: Plain, pattern: Pattern = ()) -> Plain:
        """Return a value changed to fit better: sorted where all are sorted, each key once."""
        items = tuple(self.adjust(part, (*pattern, step)) for step, part in _steps(value))
        facts = self.at(pattern)
        if value.kind in _LISTS and facts.rows and facts.ascending:
            items = tuple(sorted(items, key=Plain.order))
        if value.kind in _SETS:
            items = tuple(dict.fromkeys(items))
        if value.kind in _MAPS:
            pairs = dict(zip(items[::2], items[1::2], strict=True))
            if facts.maps and facts.closed:
                pairs = {key: _only_keys(one, pairs.keys()) for key, one in pairs.items()}
            items = tuple(part for pair in pairs.items() for part in pair)
        return replace(value, items=items)


def places(value: Plain, pattern: Pattern = ()) -> Iterator[tuple[Pattern, Plain]]:
    """Yield every part with the pattern of its place."""
    yield pattern, value
    for step, part in _steps(value):
        yield from places(part, (*pattern, step))


def _steps(value: Plain) -> Iterator[tuple[str, Plain]]:
    for at, part in enumerate(value.items):
        if value.kind in _MAPS:
            yield "value" if at % 2 else "key", part
        elif value.kind == "instance":
            yield value.items[at - 1].text if at % 2 else "name", part
        elif value.kind in _LISTS or value.kind in {"set", "frozenset"}:
            yield "*", part
        else:
            yield str(at), part


def _is_ascending(value: Plain) -> bool:
    return len({one.kind for one in value.items}) <= 1 and all(
        one.order() <= other.order() for one, other in pairwise(value.items)
    )


def _is_even(value: Plain) -> bool:
    return len({len(one.items) if one.kind in _LISTS else -1 for one in value.items}) <= 1


def _is_closed(value: Plain) -> bool:
    keys = set(value.items[::2])
    listed = [one for one in value.items[1::2] if one.kind in {*_LISTS, *_MAPS, "set", "tuple"}]
    return bool(listed) and all(set(_members(one)) <= keys for one in listed)


def _members(value: Plain) -> tuple[Plain, ...]:
    return value.items[::2] if value.kind in _MAPS else value.items


def _only_keys(value: Plain, keys: Iterable[Plain]) -> Plain:
    kept = set(keys)
    if value.kind in _MAPS:
        pairs = zip(value.items[::2], value.items[1::2], strict=True)
        return replace(
            value, items=tuple(part for key, one in pairs if key in kept for part in (key, one))
        )
    return replace(value, items=tuple(one for one in value.items if one in kept))


def _fits(facts: ValueFacts, part: Plain, *, hull: bool) -> bool:
    if part.kind in {"int", "float"}:
        return not (hull and facts.count and facts.least >= 0 > part.order()[1])
    if part.kind in _LISTS and facts.rows and len(part.items) > 1:
        return (not facts.ascending or _is_ascending(part)) and (not facts.even or _is_even(part))
    if part.kind in _MAPS and facts.maps and facts.closed and not _is_closed(part):
        return False
    keys = _members(part) if part.kind in _MAPS or part.kind in _SETS else ()
    return len(set(keys)) == len(keys)


# --- one mutation


def mutate(value: Plain, profile: ValueProfile, rng: SeededRandom) -> Plain:
    """Return the value with one part changed; the names of instance attributes stay."""
    parts = [
        (path, pattern, part)
        for (path, part), (pattern, _) in zip(value.walk(), places(value), strict=True)
        if part.kind in _MUTATIONS and "name" not in pattern
    ]
    if not parts:
        return value
    path, pattern, part = parts[rng.below(len(parts))]
    return profile.adjust(value.put(path, _MUTATIONS[part.kind](part, profile.at(pattern), rng)))


def _mutate_int(value: Plain, facts: ValueFacts, rng: SeededRandom) -> Plain:
    number = int(value.text, 16)
    most = (10, max(10, int(min(facts.most, 1e6)) * 2))[rng.below(2)]
    least = 0 if facts.count and facts.least >= 0 else -most
    choices = (
        number + 1,
        number - 1,
        0,
        1,
        number // 2,
        rng.between(least, most),
        rng.between(least, most),
    )
    return Plain("int", f"{max(choices[rng.below(len(choices))], least):x}")


def _mutate_float(value: Plain, facts: ValueFacts, rng: SeededRandom) -> Plain:
    number = float.fromhex(value.text)
    least = 0.0 if facts.count and facts.least >= 0 else float("-inf")
    choices = (
        0.0,
        1.0,
        -number,
        number / 2,
        number + 0.1,
        number * 3,
        rng.between(-2_000, 2_000) / 16,
        round(number, 0),
    )
    picked = choices[rng.below(len(choices))]
    return Plain("float", float(picked if picked >= least or picked != picked else -picked).hex())  # noqa: PLR0124 - a test for NaN


def _mutate_str(value: Plain, facts: ValueFacts, rng: SeededRandom) -> Plain:
    text, at = value.text, rng.below(len(value.text) + 1)
    letters = "".join(sorted(facts.letters)) * 3 + _LETTERS
    letter = letters[rng.below(len(letters))]
    choices = (
        "",
        text[:at] + letter + text[at:],
        text[:at] + text[at + 1 :],
        text[:at] + letter + text[at + 1 :],
        text[at:] + text[:at],
        (text + letter + text)[: _MAX_MEMBERS * 2],
        text[:at],
        text[::-1],
        text.swapcase(),
        letter * rng.between(1, 4),
    )
    return Plain("str", choices[rng.below(len(choices))])


def _mutate_bytes(value: Plain, facts: ValueFacts, rng: SeededRandom) -> Plain:
    text = _mutate_str(value, facts, rng).text
    return replace(value, text=text.encode("latin-1", "replace").decode("latin-1"))


def _mutate_list(value: Plain, _: ValueFacts, rng: SeededRandom) -> Plain:
    items = value.items
    if not items:
        return value
    at, other = rng.below(len(items)), rng.below(len(items))
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
        (items + items)[:_MAX_MEMBERS],
        (items[at],) * rng.between(1, 3),
    )
    return replace(value, items=choices[rng.below(len(choices))])


def _mutate_map(value: Plain, _: ValueFacts, rng: SeededRandom) -> Plain:
    pairs = list(zip(value.items[::2], value.items[1::2], strict=True))
    if not pairs:
        return value
    at, other = rng.below(len(pairs)), rng.below(len(pairs))
    reassigned = list(pairs)
    reassigned[at] = (pairs[at][0], pairs[other][1])
    choices: tuple[list[tuple[Plain, Plain]], ...] = (
        [],
        pairs[:at] + pairs[at + 1 :],
        pairs[::-1],
        reassigned,
        pairs[: at + 1],
        pairs[at:] + pairs[:at],
    )
    return replace(
        value, items=tuple(part for pair in choices[rng.below(len(choices))] for part in pair)
    )


_MUTATIONS: Final[dict[str, Callable[[Plain, ValueFacts, SeededRandom], Plain]]] = {
    "bool": lambda value, _, __: Plain("bool", "False" if value.text == "True" else "True"),
    "int": _mutate_int,
    "float": _mutate_float,
    "str": _mutate_str,
    "bytes": _mutate_bytes,
    "bytearray": _mutate_bytes,
    **dict.fromkeys(("list", "deque", "set", "frozenset"), _mutate_list),
    **dict.fromkeys(sorted(_MAPS), _mutate_map),
}


# --- smaller values


def smaller(value: Plain) -> Iterator[Plain]:
    """Yield values with one part made smaller; of each part, the smallest first."""
    for path, part in value.walk():
        yield from (value.put(path, one) for one in _smaller_parts(part))


def _smaller_parts(part: Plain) -> Iterator[Plain]:
    if part.kind == "int" and part.text not in {"0", "1"}:
        number = int(part.text, 16)
        yield from (
            Plain("int", f"{one:x}")
            for one in {0, 1, number // 2, number - (1 if number > 0 else -1)}
        )
    elif part.kind == "float" and float.fromhex(part.text) not in {0.0, 1.0}:
        held = float.fromhex(part.text)
        whole = [float(int(held))] if abs(held) < 1e9 else []  # noqa: PLR2004 - leaves out NaN and infinity
        yield from (Plain("float", one.hex()) for one in [0.0, 1.0, *whole] if one != held)
    elif part.kind in {"str", "bytes", "bytearray"}:
        yield from (replace(part, text=text) for text in _shorter(part.text))
        if set(part.text) - {"a"}:
            yield from (
                replace(part, text=part.text.replace(one, "a"))
                for one in sorted(set(part.text))[:4]
            )
    elif part.kind in {"list", "deque", "set", "frozenset"}:
        yield from (replace(part, items=items) for items in _shorter(part.items))
    elif part.kind in _MAPS:
        pairs = tuple(zip(part.items[::2], part.items[1::2], strict=True))
        yield from (replace(part, items=tuple(chain(*kept))) for kept in _shorter(pairs))


_Row = TypeVar("_Row", str, tuple[Plain, ...], tuple[tuple[Plain, Plain], ...])


def _shorter(row: _Row) -> Iterator[_Row]:
    half = len(row) // 2
    if row:
        yield row[:0]
    if half:
        yield from (row[:half], row[half:])
    yield from (row[:at] + row[at + 1 :] for at in range(min(len(row), 12)))
