"""Makes calls with one unusual value: outside of the recorded range, or an edge case of its type.

One value of a recorded call is replaced: a number by one of the other sign or beyond 64 bits, a
text by one with characters that change their length in upper case, a list by its reverse. The type
stays as recorded; `None`, or a bool for an int, is used only where the type hint or the default
allows it. The properties of all recorded values are kept (`ValueProfile`): a list that is always
sorted stays sorted.
"""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, pairwise, zip_longest
from typing import Final

from abreast.jobs.candidates.inputs.mutate import Pattern, ValueProfile, places
from abreast.jobs.candidates.inputs.plain_values import Plain, from_value
from abreast.jobs.candidates.source.target import Target, find_function

PREFIX: Final = "unusual "  # the start of the names of such calls
MAX_UNUSUAL_CALLS: Final = 240
_BASES_PER_PLACE: Final = 3  # recorded calls into which the values of one place are put
_ARGUMENT_DEPTH: Final = 2  # length of the path to a whole argument of a call
_LONG_LIST: Final = 257  # members
_RESTRICTING_HINTS: Final = frozenset({"Literal", "Annotated"})
_INDIVISIBLE_KINDS: Final = frozenset({"call", "text", "enum", "instance", "complex", "subtuple"})

_INTS: Final = (0, 1, -1, 2, -2, 7, 10, -10, 97, 255, 256, 1_000, -1_000, 12_345, 10**6)
_BOOLS: Final = (Plain("bool", "True"), Plain("bool", "False"))
_HUGE: Final = (2**31, -(2**31) - 1, 2**53 + 1, 2**63, -(2**63) - 1, 2**64 + 1)
# As floats, some of them are equal.
_NEIGHBOURS: Final = (2**53 + 1, 2**53, 2**53 + 2, -(2**53), -(2**53) - 1)
# Two or more spellings of one letter, which a normal form of Unicode or another case makes one.
_SPELLINGS: Final = ("\u00e9", "e\u0301", "\u00c5", "A\u030a", "\u212b", "\ufb01", "fi", "ß", "ss")
_FLOATS: Final = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 0.1 + 0.2, 1e-9, 5e-324, 1e16 + 2, 1e308, -1e308),
    *(float("inf"), float("-inf"), float("nan")),
)
_CHARACTERS: Final = (
    *("ß", "ẞ", "İ", "\u0131", "ﬁ", "ς", "é", "e\u0301", "ä", "Å", "Z", "z", "_"),
    *("٣", "²", "½", "Ⅷ", "\U0001d7d8", "😀", "👩\u200d👧", "\u200b", "\u00a0", "\u3000", "\ufeff"),
    *(
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\r",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x85",
        "\u2028",
        "\x00",
        "-",
        "'",
        '"',
        "\\",
        "%s",
        "{0}",
    ),
)
_CASE_PAIRS: Final = ("straße", "İ", "ﬁ", "e\u0301", "Σς", "a b")
_STRINGS: Final = (
    "",
    " ",
    "\n",
    "a",
    "A",
    "1",
    "-1",
    "1_000",
    " 1 ",
    "1e5",
    "nan",
    "None",
    "aA",
    "straße",
    "ab" * 150,
)
_BYTES: Final = (
    "",
    "\x00",
    "\xff",
    "\n",
    "\r\n",
    "\xc3\x9f",
    "a",
    "A",
    " ",
    "".join(map(chr, range(256))),
)
_DATES: Final = (
    (1, 1, 1),
    (9999, 12, 31),
    (2000, 2, 29),
    (1900, 2, 28),
    (2023, 12, 31),
    (2024, 1, 1),
    (1969, 12, 31),
)
# By type that is built by a call: the arguments of unusual ones.
_CALL_ARGUMENTS: Final[dict[str, tuple[tuple[int, ...], ...]]] = {
    "datetime.date": _DATES,
    "datetime.datetime": (
        *((*day, 0, 0, 0, 0) for day in _DATES),
        (9999, 12, 31, 23, 59, 59, 999_999),
    ),
    "datetime.timedelta": (
        (0, 0, 0),
        (0, 0, 1),
        (-1, 86_399, 999_999),
        (-1, 0, 0),
        (365, 0, 0),
        (999_999_999, 86_399, 999_999),
    ),
    "fractions.Fraction": ((0, 1), (1, 1), (-1, 3), (7, 2)),
    "range": ((0, 0, 1), (5, 0, -1), (0, 10, 3), (-3, 3, 1)),
}
_CONTAINERS: Final = frozenset({"list", "tuple", "deque", "set", "frozenset", "dict"})
_KINDS_OF_ANY: Final = 3  # kinds of containers in one argument: it seems to take any container
_OTHER_CONTAINERS: Final = (
    Plain("bytes", "ab"),
    Plain("frozenset", "", (from_value(1), from_value(2))),
)
_DECIMALS: Final = ("NaN", "Infinity", "-Infinity", "-0", "0E+3", "1E-30", "1E+30", "1.10", "-2.5")


def unusual_calls(
    wholes: Sequence[Plain], profile: ValueProfile, source: str, target: Target
) -> tuple[list[Plain], int]:
    """Return calls with an unusual value, and how many values a type hint forbids.

    There are at most `MAX_UNUSUAL_CALLS`, the same for the same recorded ones. The places of a call
    take turns; huge values are last.
    """
    hints = Hints(source, target)
    places_of_kind: dict[
        tuple[Pattern, str, tuple[int, ...]], list[tuple[Plain, tuple[int, ...], Plain]]
    ] = {}
    for whole in sorted(wholes, key=lambda one: one.size):
        for path, pattern, part in _replaceable(whole):
            known = places_of_kind.setdefault((pattern, part.kind, path[:2]), [])
            if len(known) < _BASES_PER_PLACE:
                known.append((whole, path, part))
    forbidden: Counter[str] = Counter()
    made: list[list[Plain]] = []
    huge: list[list[Plain]] = []
    for (pattern, *_), bases in places_of_kind.items():
        name = hints.parameter(bases[0][0], bases[0][1])
        values, large = _unusual_values(bases[0][2], profile, pattern)
        large = [*large, *_neighbour_rows(part for *_, part in bases)]
        if len(bases[0][1]) == _ARGUMENT_DEPTH:
            values += [
                *([Plain("none")] if hints.may_be_none(name) else []),
                *(_BOOLS if hints.may_be_bool(name) else ()),
            ]
        if hints.forbids(name):
            forbidden[name] += len(values) + len(large)
            continue
        made.append(_put_into_calls(values, bases, profile))
        huge.append(_put_into_calls(large, bases, profile))
    related = (
        [
            *(one for whole in list(wholes)[:1] for one in _related(whole)),
            *_other_containers(wholes, hints),
        ]
        if not forbidden
        else []
    )
    found = dict.fromkeys([*related, *_interleave(made), *_interleave(huge)])
    recorded = set(wholes)
    new_calls = [one for one in found if one not in recorded and profile.fits(one, hull=False)]
    return new_calls[:MAX_UNUSUAL_CALLS], forbidden.total()


def _put_into_calls(
    values: Sequence[Plain],
    bases: Sequence[tuple[Plain, tuple[int, ...], Plain]],
    profile: ValueProfile,
) -> list[Plain]:
    return [
        profile.adjust(whole.put(path, value))
        for value, (whole, path, _) in zip(values, cycle(bases), strict=False)
    ]


def _related(whole: Plain) -> Iterator[Plain]:
    """Yield calls of which two arguments of one type are equal, or nearly equal."""
    arguments = [
        (path, part) for path, _, part in _replaceable(whole) if len(path) == _ARGUMENT_DEPTH
    ]
    for (path, part), (other, second) in pairwise(arguments):
        pairs: list[tuple[Plain, Plain]] = (
            [(part, part), (second, second)] if part.kind == second.kind else []
        )
        if part.kind == second.kind == "str":
            pairs += [
                (Plain("str", one), Plain("str", form(one)))
                for one in _CASE_PAIRS
                for form in (str.upper, str.lower, str)
            ]
        elif part.kind == second.kind and part.kind in {"int", "float"}:
            pairs += [(part, _other_sign(part)), (second, _other_sign(second))]
        yield from (whole.put(path, one).put(other, two) for one, two in pairs)


def _other_containers(wholes: Sequence[Plain], hints: "Hints") -> Iterator[Plain]:
    """Yield calls with a container of yet another kind, where an argument has several in it.

    What takes lists, tuples and sets alike takes bytes and frozensets too, unless its hint says
    otherwise.
    """
    found: dict[tuple[int, ...], dict[str, tuple[Plain, tuple[int, ...]]]] = {}
    for whole in sorted(wholes, key=lambda one: one.size):
        for path, _, part in _replaceable(whole):
            if part.kind in _CONTAINERS and not hints.has(hints.parameter(whole, path)):
                found.setdefault(path[:2], {}).setdefault(part.kind, (whole, path))
    for bases in found.values():
        if len(bases) >= _KINDS_OF_ANY:
            for whole, path in bases.values():
                yield from (whole.put(path, value) for value in _OTHER_CONTAINERS)


def _interleave(rows: Sequence[Sequence[Plain]]) -> Iterator[Plain]:
    return (one for column in zip_longest(*rows) for one in column if one is not None)


def _replaceable(whole: Plain) -> Iterator[tuple[tuple[int, ...], Pattern, Plain]]:
    """Yield the replaceable values: not the object of a method, nor the names of keywords."""
    indivisible: list[tuple[int, ...]] = []
    for (path, part), (pattern, _) in zip(whole.walk(), places(whole), strict=True):
        if (
            len(path) < _ARGUMENT_DEPTH
            or path[0] == 0
            or pattern == ("2", "key")
            or any(path[: len(one)] == one for one in indivisible)
        ):
            continue
        if part.kind in _INDIVISIBLE_KINDS:
            indivisible.append(path)
        yield path, pattern, part


# --- by type


def _unusual_values(
    part: Plain, profile: ValueProfile, pattern: Pattern
) -> tuple[list[Plain], list[Plain]]:
    """Return the unusual values of a kind, and separately huge ones, which may take too long."""
    if part.kind == "int":
        facts, number = profile.at(pattern), int(part.text, 16)
        most, least = int(min(facts.most, 2**62)), int(max(facts.least, -(2**62)))
        near = (-number, number + 1, -number - 1, most + 1, 2 * most + 1, least - 1)
        return list(map(from_value, dict.fromkeys((*near, *_INTS)))), list(map(from_value, _HUGE))
    make = _MAKERS.get(part.kind)
    return list(make(part)) if make else [], []


def _neighbour_rows(parts: Iterable[Plain]) -> list[Plain]:
    """Return a row of values that are easily taken for each other, if one of these is such a row.

    Ints that a float can't tell apart, or texts that a normal form of Unicode can't.
    """
    for part in parts:
        kinds = {one.kind for one in part.items}
        if part.kind == "list" and kinds in ({"int"}, {"str"}):
            row = _NEIGHBOURS if kinds == {"int"} else _SPELLINGS
            return [replace(part, items=tuple(map(from_value, row)))]
    return []


def _floats(part: Plain) -> Iterator[Plain]:
    number = float.fromhex(part.text)
    yield from (from_value(one) for one in (-number, number + 1, number / 3, *_FLOATS))


def _strings(part: Plain) -> Iterator[Plain]:
    text, half = part.text, len(part.text) // 2
    yield from (
        Plain("str", (text[:half] + one + text[half:], one + text, text + one, one)[at % 4])
        for at, one in enumerate(_CHARACTERS)
    )
    forms = (text.upper(), text.swapcase(), text[::-1], text + text)
    yield from (Plain("str", one) for one in (*_STRINGS, *forms, *_CHARACTERS))


def _lists(part: Plain) -> Iterator[Plain]:
    items = part.items
    ordered = (
        tuple(sorted(items, key=Plain.order)) if len({one.kind for one in items}) == 1 else items
    )
    doubled = tuple(one for one in items for _ in range(2))
    long = (items * (_LONG_LIST // max(1, len(items)) + 1))[:_LONG_LIST]
    for row in (
        (),
        items[:1],
        doubled,
        items[::-1],
        ordered,
        ordered[::-1],
        long,
        tuple(map(_other_sign, items)),
    ):
        yield replace(
            part, items=row if part.kind not in {"set", "frozenset"} else tuple(dict.fromkeys(row))
        )


def _other_sign(part: Plain) -> Plain:
    if part.kind == "int":
        return from_value(-int(part.text, 16))
    return from_value(-float.fromhex(part.text)) if part.kind == "float" else part


_MAKERS: Final[dict[str, Callable[[Plain], Iterator[Plain] | tuple[Plain, ...]]]] = {
    "float": _floats,
    "str": _strings,
    "bool": lambda part: (Plain("bool", "False" if part.text == "True" else "True"),),
    **dict.fromkeys(
        ("bytes", "bytearray"),
        lambda part: tuple(
            replace(part, text=text) for one in _BYTES for text in (one, part.text + one)
        ),
    ),
    **dict.fromkeys(("list", "deque", "set", "frozenset"), _lists),
    "call": lambda part: tuple(
        replace(part, items=tuple(map(from_value, numbers)))
        for numbers in _CALL_ARGUMENTS.get(part.text, ())
    ),
    "text": lambda part: tuple(
        Plain("text", f"decimal.Decimal|{one}")
        for one in _DECIMALS
        if part.text.startswith("decimal.Decimal|")
    ),
}


# --- type hints


class Hints:
    """The hints of the target's parameters, by name."""

    def __init__(self, source: str, target: Target) -> None:
        function = find_function(source, target)
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        static = any(
            isinstance(one, ast.Name) and one.id == "staticmethod"
            for one in function.decorator_list
        )
        self._positional = [one.arg for one in positional][
            0 if "." not in target.qualname or static else 1 :
        ]
        self._hints = {one.arg: one.annotation for one in (*positional, *arguments.kwonlyargs)}
        defaults = zip(reversed(positional), reversed(arguments.defaults), strict=False)
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        self._none = {
            one.arg
            for one, default in (*defaults, *named)
            if isinstance(default, ast.Constant) and default.value is None
        }

    def parameter(self, whole: Plain, path: tuple[int, ...]) -> str:
        """Return the name of the parameter at a path of a call; empty for `*args`."""
        if path[0] == 1:
            return self._positional[path[1]] if path[1] < len(self._positional) else ""
        return whole.items[2].items[path[1] - 1].text

    def has(self, name: str) -> bool:
        """Whether the parameter has a hint."""
        return self._hints.get(name) is not None

    def forbids(self, name: str) -> bool:
        """Whether the hint restricts the allowed values."""
        return bool(_hint_names(self._hints.get(name)) & _RESTRICTING_HINTS)

    def keep(self, base: Plain, made: Plain) -> Plain:
        """Return `made` with the arguments of `base` where the hint restricts the values."""
        for at, step in ((1, 1), (2, 2)):
            for place in range(step - 1, len(made.items[at].items), step):
                if self.forbids(self.parameter(made, (at, place))):
                    made = made.put((at, place), base.items[at].items[place])
        return made

    def may_be_none(self, name: str) -> bool:
        """Whether the hint or the default allows None."""
        return name in self._none or "None" in _hint_names(self._hints.get(name))

    def may_be_bool(self, name: str) -> bool:
        """Whether the hint allows a bool; `int` alone does not."""
        return "bool" in _hint_names(self._hints.get(name))


def _hint_names(annotation: ast.expr | None) -> set[str]:
    """Return the names in a hint, without those in brackets of other types than unions."""
    name, inner = type_name(annotation)
    divisible = name == "union" or name in _RESTRICTING_HINTS
    return {name}.union(*map(_hint_names, inner if divisible else ()))


_CONSTANT_NAMES: Final[dict[object, str]] = {None: "None", ...: "..."}


def type_name(annotation: ast.expr | None) -> tuple[str, list[ast.expr]]:
    """Return the last part of a type's name, and the types in its brackets."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            annotation = None
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return "union", [annotation.left, annotation.right]
    if isinstance(annotation, ast.Constant):
        return _CONSTANT_NAMES.get(annotation.value, ""), []
    if isinstance(annotation, ast.Subscript):
        name, _ = type_name(annotation.value)
        held = annotation.slice
        inner = held.elts if isinstance(held, ast.Tuple) else [held]
        if name == "Optional":
            return "union", [*inner, ast.Constant(None)]
        return ("union" if name == "Union" else name), list(inner)
    if isinstance(annotation, ast.Attribute):
        return annotation.attr, []
    return (annotation.id, []) if isinstance(annotation, ast.Name) else ("", [])
