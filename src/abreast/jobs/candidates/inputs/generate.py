"""Inputs that no test has: recorded ones changed a little, and new ones made from type hints.

Nothing of the project is imported here: hints are read from the source, recorded arguments from
their portraits. No library for property tests is used: those look at one example after the other in
their own process, while here hundreds are called at once in another one, which nobody trusts.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from abreast.core.seeds import derive_seed
from abreast.jobs.candidates.inputs.mutate import Dice, Pattern, ValueProfile, mutated, smaller
from abreast.jobs.candidates.inputs.plain_values import NotPlain, Plain, described, from_value
from abreast.jobs.candidates.inputs.unusual import PREFIX, Hints, Unusual, unusual_calls
from abreast.jobs.candidates.source.target import Target, find_function
from abreast.jobs.candidates.values.invocation import Invocation
from abreast.jobs.candidates.values.snapshot import ValueSnapshot

COUNT: Final = 200
"""Inputs that are made unless told otherwise."""
_SEEDS: Final = 60  # recorded calls that are changed
_TRIES: Final = 8  # per input, to make one that is new and fits
_LONG: Final = 8  # members of what is made from a hint


@dataclass(frozen=True, slots=True)
class GeneratedCall:
    """The arguments of one call, and what it is a method of: a tuple of three, so that all of it is one value."""

    name: str
    whole: Plain

    def shown(self, function: str) -> str:
        """As one would write it."""
        owner, args, kwargs = self.whole.items
        given = [str(one) for one in args.items]
        given += [
            f"{key.text}={one}"
            for key, one in zip(kwargs.items[::2], kwargs.items[1::2], strict=True)
        ]
        before = f"{owner}." if owner.kind != "none" else ""
        return f"{before}{function}({', '.join(given)})"

    def smaller(self) -> Iterator[Plain]:
        """Calls with less in them; the same number of arguments."""
        _, args, kwargs = self.whole.items
        for at, one in enumerate(args.items):
            yield from (self.whole.put((1, at), less) for less in smaller(one))
        for at in range(1, len(kwargs.items), 2):
            yield from (self.whole.put((2, at), less) for less in smaller(kwargs.items[at]))

    def to_json(self) -> dict[str, Any]:
        """As the child reads it."""
        owner, args, kwargs = self.whole.items
        args = replace(args, kind="list")
        return {
            "name": self.name,
            "self": owner.to_json(),
            "args": args.to_json(),
            "kwargs": kwargs.to_json(),
        }


@dataclass(frozen=True, slots=True)
class GeneratedInputs:
    """Calls to be made, and what all recorded ones have in common."""

    calls: tuple[GeneratedCall, ...]
    profile: ValueProfile
    left_out: int = 0
    """Recorded calls whose arguments can't be made again."""
    forbidden: int = 0
    """Unusual values that a type hint forbids."""

    def encode(self, seconds: float = 0.0) -> bytes:
        """For `watch`; with a bound on the CPU seconds of each, for the original, which may take for ever."""
        plain = {"seconds": seconds, "calls": [call.to_json() for call in self.calls]}
        return json.dumps(plain, separators=(",", ":")).encode("ascii")

    def only(self, names: Iterable[str]) -> GeneratedInputs:
        """Those of these names."""
        kept = set(names)
        return replace(self, calls=tuple(call for call in self.calls if call.name in kept))


def generate(
    recorded: Sequence[Invocation],
    source: str,
    target: Target,
    *,
    count: int = COUNT,
    seed: int = 0,
) -> GeneratedInputs:
    """Up to `count` new calls, the same for the same recorded calls, source and seed.

    None if nothing is known.

    Beside them come calls with unusual values, which may leave what was recorded; those that may
    take long are last.
    """
    wholes: dict[Plain, None] = {}
    failed = 0
    for one in recorded:
        try:
            wholes[whole_call(one.before)] = None
        except NotPlain:
            failed += 1
    profile = ValueProfile(wholes)
    makers = [_changing(list(wholes)[:_SEEDS], profile, Hints(source, target))] if wholes else []
    hinted = _from_hints(source, target, profile)
    makers += [hinted] if hinted else []
    calls: dict[Plain, GeneratedCall] = {}
    for at in range(count if makers else 0):
        for attempt in range(_TRIES):
            dice = Dice(derive_seed(seed, f"{target}/{at}/{attempt}"))
            made = makers[at % len(makers)](dice)
            if made not in wholes and made not in calls and profile.fits(made):
                calls[made] = GeneratedCall(f"generated {at}", made)
                break
    small_first = sorted(
        calls.values(), key=lambda call: call.whole.size
    )  # whoever has little time has most of them
    unusual = (
        unusual_calls(list(wholes) or list(calls), profile, source, target)
        if count
        else Unusual(())
    )
    more = [one for one in unusual.calls if one not in calls]
    named = [GeneratedCall(f"{PREFIX}{at}", one) for at, one in enumerate(more)]
    return GeneratedInputs((*small_first, *named), profile, failed, unusual.forbidden)


def whole_call(before: ValueSnapshot) -> Plain:
    """What a call was given, from its portrait. Raises NotPlain."""
    root = described(before)
    parts = {key.text: value for key, value in zip(root.items[::2], root.items[1::2], strict=True)}
    if root.kind != "dict" or "arguments" not in parts or "keywords" not in parts:
        raise NotPlain("no call")
    return Plain(
        "tuple", "", (parts.get("self", Plain("none")), parts["arguments"], parts["keywords"])
    )


def _changing(
    wholes: Sequence[Plain], profile: ValueProfile, hints: Hints
) -> Callable[[Dice], Plain]:
    def make(dice: Dice) -> Plain:
        made = wholes[dice.below(len(wholes))]
        for _ in range(dice.between(1, 3)):
            owner, _, named = made.items
            changed = mutated(made, profile, dice).put((0,), owner)
            if (
                changed.items[2].items[::2] == named.items[::2]
            ):  # the same arguments are given by name
                made = hints.keep(made, changed)
        return made

    return make


# --- from type hints


def _from_hints(
    source: str, target: Target, profile: ValueProfile
) -> Callable[[Dice], Plain] | None:
    """Calls of a plain function whose parameters all have a hint that is understood."""
    if "." in target.qualname:
        return None
    arguments = find_function(source, target).args
    if arguments.vararg or arguments.kwarg:
        return None
    positional = [*arguments.posonlyargs, *arguments.args]
    hints = [_Hint(one.annotation) for one in (*positional, *arguments.kwonlyargs)]
    if not hints or not all(hint.known for hint in hints):
        return None

    def make(dice: Dice) -> Plain:
        made = [hint.make(dice, profile, ("1", str(at))) for at, hint in enumerate(hints)]
        named = [
            part
            for one, value in zip(arguments.kwonlyargs, made[len(positional) :], strict=True)
            for part in (Plain("str", one.arg), value)
        ]
        args = Plain("tuple", "", tuple(made[: len(positional)]))
        return profile.tidied(
            Plain("tuple", "", (Plain("none"), args, Plain("dict", "", tuple(named))))
        )

    return make


_SCALARS: Final = frozenset({"int", "float", "str", "bool", "bytes", "None"})
_ROWS: Final = {
    **dict.fromkeys(
        ("list", "List", "Sequence", "Iterable", "Collection", "MutableSequence"), "list"
    ),
    **dict.fromkeys(("set", "Set", "MutableSet", "AbstractSet"), "set"),
    **dict.fromkeys(("frozenset", "FrozenSet"), "frozenset"),
}
_MAPS: Final = frozenset({"dict", "Dict", "Mapping", "MutableMapping"})


class _Hint:
    """An annotation that values can be made of."""

    def __init__(self, annotation: ast.expr | None) -> None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                annotation = None
        self._name, inner = _named(annotation)
        self._parts = [_Hint(one) for one in inner]

    @property
    def known(self) -> bool:
        """Whether it is understood, with all that is in it."""
        enough = {"row": 1, "map": 2}.get(self._kind, 0)
        return (
            bool(self._kind)
            and len(self._parts) >= enough
            and all(part.known for part in self._parts)
        )

    @property
    def _kind(self) -> str:
        if self._name in _SCALARS:
            return "scalar"
        if self._name in _ROWS:
            return "row"
        return (
            "map"
            if self._name in _MAPS
            else self._name
            if self._name in {"tuple", "union", "..."}
            else ""
        )

    def make(self, dice: Dice, profile: ValueProfile, pattern: Pattern) -> Plain:
        """A value of that type, like those that were recorded at that place."""
        if self._kind == "scalar":
            return _scalar(self._name, dice, profile, pattern)
        if self._kind == "union":
            return self._parts[dice.below(len(self._parts))].make(dice, profile, pattern)
        length = dice.between(0, _LONG)
        if self._kind == "row":
            items = tuple(
                self._parts[0].make(dice, profile, (*pattern, "*")) for _ in range(length)
            )
            return profile.tidied(Plain(_ROWS[self._name], "", items))
        if self._kind == "map":
            pairs = {
                self._parts[0].make(dice, profile, (*pattern, "key")): self._parts[1].make(
                    dice, profile, (*pattern, "value")
                )
                for _ in range(length)
            }
            return Plain("dict", "", tuple(part for pair in pairs.items() for part in pair))
        return self._tuple(dice, profile, pattern, length)

    def _tuple(self, dice: Dice, profile: ValueProfile, pattern: Pattern, length: int) -> Plain:
        parts = self._parts
        if len(parts) == 2 and parts[1]._name == "...":  # noqa: PLR2004, SLF001 - `tuple[int, ...]`
            parts = parts[:1] * length
        return Plain(
            "tuple",
            "",
            tuple(one.make(dice, profile, (*pattern, str(at))) for at, one in enumerate(parts)),
        )


def _named(annotation: ast.expr | None) -> tuple[str, list[ast.expr]]:
    """The last part of a type's name, and what is in its brackets."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return "union", [annotation.left, annotation.right]
    if isinstance(annotation, ast.Constant):
        return (
            "None" if annotation.value is None else "..." if annotation.value is ... else ""
        ), []
    if isinstance(annotation, ast.Subscript):
        name, _ = _named(annotation.value)
        inner = (
            annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        )
        if name == "Optional":
            return "union", [*inner, ast.Constant(None)]
        return ("union" if name == "Union" else name), list(inner)
    if isinstance(annotation, ast.Attribute):
        return annotation.attr, []
    return (annotation.id, []) if isinstance(annotation, ast.Name) else ("", [])


def _scalar(name: str, dice: Dice, profile: ValueProfile, pattern: Pattern) -> Plain:
    first = {"int": 1, "float": 1.0, "str": "ab", "bool": True, "None": None}.get(name)
    start = Plain("bytes", "ab") if name == "bytes" else from_value(first)
    for _ in range(dice.between(1, 4)):
        start = mutated(start, _Seen(profile, pattern), dice)
    return start


class _Seen(ValueProfile):
    """The facts of one place, for a value that stands alone."""

    def __init__(self, profile: ValueProfile, pattern: Pattern) -> None:
        super().__init__(())
        self._outer, self._pattern = profile, pattern

    def at(self, pattern: Pattern) -> Any:  # noqa: ANN401
        return self._outer.at((*self._pattern, *pattern))
