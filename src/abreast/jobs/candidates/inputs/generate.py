"""Generates inputs that no test has: mutations of recorded ones, and new ones from type hints.

Nothing of the user's project is imported here: hints are read from the source, recorded arguments
from their snapshots. No library for property tests is used: those run one example after the other
in their own process, while here hundreds are run at once in another process, which is not trusted.
"""

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations
from typing import Any, Final, Self

from abreast.core.seeds import derive_seed
from abreast.jobs.candidates.inputs.mutate import (
    Pattern,
    SeededRandom,
    ValueFacts,
    ValueProfile,
    mutate,
    smaller,
)
from abreast.jobs.candidates.inputs.plain_values import NotPlain, Plain, from_snapshot, from_value
from abreast.jobs.candidates.inputs.unusual import (
    PREFIX,
    Hints,
    type_name,
    unusual_calls,
)
from abreast.jobs.candidates.source.target import Target, find_function
from abreast.jobs.candidates.values.invocation import Invocation
from abreast.jobs.candidates.values.snapshot import ValueSnapshot

DEFAULT_INPUT_COUNT: Final = 200
_MAX_MUTATED_CALLS: Final = 60  # recorded calls that are mutated
_ATTEMPTS_PER_INPUT: Final = 8  # to make one that is new and fits the profile
_MAX_HINTED_MEMBERS: Final = 8  # of a container that is made from a hint
_MAX_JOINED_LISTS: Final = 4  # each is joined with each other one


@dataclass(frozen=True, slots=True)
class GeneratedCall:
    """One call. `whole` is a tuple of the object (of a method), arguments and keywords.

    It is one value, so that all of it can be mutated in the same way.
    """

    name: str
    whole: Plain

    def shown(self, function: str) -> str:
        """Return the call as Python code."""
        owner, args, kwargs = self.whole.items
        pairs = zip(kwargs.items[::2], kwargs.items[1::2], strict=True)
        given = [*map(str, args.items), *(f"{key.text}={one}" for key, one in pairs)]
        before = f"{owner}." if owner.kind != "none" else ""
        return f"{before}{function}({', '.join(given)})"

    def smaller(self) -> Iterator[Plain]:
        """Yield calls with smaller arguments, and as many of them."""
        _, args, kwargs = self.whole.items
        for at, one in enumerate(args.items):
            yield from (self.whole.put((1, at), less) for less in smaller(one))
        for at in range(1, len(kwargs.items), 2):
            yield from (self.whole.put((2, at), less) for less in smaller(kwargs.items[at]))

    def to_json(self) -> dict[str, Any]:
        """Return it in the form that the child process reads."""
        owner, args, kwargs = self.whole.items
        return {
            "name": self.name,
            "self": owner.to_json(),
            "args": replace(args, kind="list").to_json(),
            "kwargs": kwargs.to_json(),
        }


@dataclass(frozen=True, slots=True)
class GeneratedInputs:
    """Generated calls, and what all recorded calls have in common.

    Attributes:
        left_out: The number of recorded calls whose arguments can't be rebuilt.
        forbidden: The number of unusual values that a type hint forbids.
    """

    calls: tuple[GeneratedCall, ...]
    profile: ValueProfile
    left_out: int = 0
    forbidden: int = 0

    def encode(self, seconds: float = 0.0) -> bytes:
        """Return the calls as bytes for the child process.

        `seconds` limits the CPU time of each call; the original may never return from some.
        """
        return json.dumps(
            {"seconds": seconds, "calls": [call.to_json() for call in self.calls]},
            separators=(",", ":"),
        ).encode("ascii")

    def only(self, names: Iterable[str]) -> Self:
        """Return it with only the calls of these names."""
        kept = set(names)
        return replace(self, calls=tuple(call for call in self.calls if call.name in kept))


def generate(
    recorded: Sequence[Invocation],
    source: str,
    target: Target,
    *,
    count: int = DEFAULT_INPUT_COUNT,
    seed: int = 0,
) -> GeneratedInputs:
    """Return up to `count` new calls, the same for the same recorded calls, source and seed.

    There are none without recorded calls and usable hints. Calls with unusual values are added,
    which may be outside of the recorded range; those that may take long are last.
    """
    wholes: dict[Plain, None] = {}
    failed = 0
    for one in recorded:
        try:
            wholes[whole_call(one.before)] = None
        except NotPlain:
            failed += 1
    profile = ValueProfile(wholes)
    makers = [
        maker
        for maker in (
            _mutation_maker(list(wholes)[:_MAX_MUTATED_CALLS], profile, Hints(source, target)),
            _hint_maker(source, target, profile),
        )
        if maker
    ]
    calls: dict[Plain, GeneratedCall] = {}
    for made in _joined_calls(list(wholes), profile) if count else ():
        if made not in wholes and profile.fits(made):
            calls.setdefault(made, GeneratedCall(f"joined {len(calls)}", made))
    for at in range(count if makers else 0):
        for attempt in range(_ATTEMPTS_PER_INPUT):
            made = makers[at % len(makers)](
                SeededRandom(derive_seed(seed, f"{target}/{at}/{attempt}"))
            )
            if made not in wholes and made not in calls and profile.fits(made):
                calls[made] = GeneratedCall(f"generated {at}", made)
                break
    # Small calls are first, so that most calls fit into a short time.
    small_first = sorted(calls.values(), key=lambda call: call.whole.size)
    unusual, forbidden = (
        unusual_calls(list(wholes) or list(calls), profile, source, target) if count else ([], 0)
    )
    more = (one for one in unusual if one not in calls)
    named = [GeneratedCall(f"{PREFIX}{at}", one) for at, one in enumerate(more)]
    return GeneratedInputs((*small_first, *named), profile, failed, forbidden)


def whole_call(before: ValueSnapshot) -> Plain:
    """Return the object, arguments and keywords of a recorded call. Raises NotPlain."""
    root = from_snapshot(before)
    parts = {key.text: value for key, value in zip(root.items[::2], root.items[1::2], strict=True)}
    if root.kind != "dict" or "arguments" not in parts or "keywords" not in parts:
        raise NotPlain("no call")
    return Plain(
        "tuple", "", (parts.get("self", Plain("none")), parts["arguments"], parts["keywords"])
    )


def _joined_calls(wholes: Sequence[Plain], profile: ValueProfile) -> Iterator[Plain]:
    """Yield recorded calls whose list goes on with the list of another one, of other members.

    They show what a function has done to a list by the time that it rejects a member.
    """
    lists: dict[int, dict[frozenset[str], tuple[Plain, Plain]]] = {}
    for whole in wholes:
        for at, part in enumerate(whole.items[1].items):
            if part.kind == "list" and part.items:
                kinds = frozenset(one.kind for one in part.items)
                lists.setdefault(at, {}).setdefault(kinds, (whole, part))
    for at, by_kinds in lists.items():
        chosen = list(by_kinds.values())[:_MAX_JOINED_LISTS]
        for (whole, first), (_, second) in permutations(chosen, 2):
            joined = replace(first, items=first.items + second.items)
            yield profile.adjust(whole.put((1, at), joined))


def _mutation_maker(
    wholes: Sequence[Plain], profile: ValueProfile, hints: Hints
) -> Callable[[SeededRandom], Plain] | None:
    def make(rng: SeededRandom) -> Plain:
        made = wholes[rng.below(len(wholes))]
        for _ in range(rng.between(1, 3)):
            owner, _, named = made.items
            changed = mutate(made, profile, rng).put((0,), owner)
            if changed.items[2].items[::2] == named.items[::2]:  # the same keywords
                made = hints.keep(made, changed)
        return made

    return make if wholes else None


# --- from type hints


def _hint_maker(
    source: str, target: Target, profile: ValueProfile
) -> Callable[[SeededRandom], Plain] | None:
    """Return a maker of calls from hints; None for methods, and if a hint is not understood."""
    if "." in target.qualname:
        return None
    arguments = find_function(source, target).args
    if arguments.vararg or arguments.kwarg:
        return None
    positional = [*arguments.posonlyargs, *arguments.args]
    hints = [_Hint(one.annotation) for one in (*positional, *arguments.kwonlyargs)]
    if not hints or not all(hint.known for hint in hints):
        return None

    def make(rng: SeededRandom) -> Plain:
        made = [hint.make(rng, profile, ("1", str(at))) for at, hint in enumerate(hints)]
        named = [
            part
            for one, value in zip(arguments.kwonlyargs, made[len(positional) :], strict=True)
            for part in (Plain("str", one.arg), value)
        ]
        args = Plain("tuple", "", tuple(made[: len(positional)]))
        return profile.adjust(
            Plain("tuple", "", (Plain("none"), args, Plain("dict", "", tuple(named))))
        )

    return make


_CONTAINERS: Final = {
    **dict.fromkeys(
        ("list", "List", "Sequence", "Iterable", "Collection", "MutableSequence"), "list"
    ),
    **dict.fromkeys(("set", "Set", "MutableSet", "AbstractSet"), "set"),
    **dict.fromkeys(("frozenset", "FrozenSet"), "frozenset"),
}
_KINDS: Final = {
    **dict.fromkeys(("int", "float", "str", "bool", "bytes", "None"), "scalar"),
    **dict.fromkeys(_CONTAINERS, "row"),
    **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping"), "map"),
    **{name: name for name in ("tuple", "union", "...")},
}


class _Hint:
    def __init__(self, annotation: ast.expr | None) -> None:
        self._name, inner = type_name(annotation)
        self._kind = _KINDS.get(self._name, "")
        self._parts = [_Hint(one) for one in inner]

    @property
    def known(self) -> bool:
        return (
            bool(self._kind)
            and len(self._parts) >= {"row": 1, "map": 2}.get(self._kind, 0)
            and all(part.known for part in self._parts)
        )

    def make(self, rng: SeededRandom, profile: ValueProfile, pattern: Pattern) -> Plain:
        if self._kind == "scalar":
            return _scalar(self._name, rng, profile, pattern)
        if self._kind == "union":
            return self._parts[rng.below(len(self._parts))].make(rng, profile, pattern)
        length = rng.between(0, _MAX_HINTED_MEMBERS)
        if self._kind == "row":
            items = tuple(self._parts[0].make(rng, profile, (*pattern, "*")) for _ in range(length))
            return profile.adjust(Plain(_CONTAINERS[self._name], "", items))
        if self._kind == "map":
            pairs = {
                self._parts[0].make(rng, profile, (*pattern, "key")): self._parts[1].make(
                    rng, profile, (*pattern, "value")
                )
                for _ in range(length)
            }
            return Plain("dict", "", tuple(chain(*pairs.items())))
        parts = self._parts
        if len(parts) == 2 and parts[1]._name == "...":  # noqa: PLR2004, SLF001 - `tuple[int, ...]`, same class
            parts = parts[:1] * length
        return Plain(
            "tuple",
            "",
            tuple(one.make(rng, profile, (*pattern, str(at))) for at, one in enumerate(parts)),
        )


def _scalar(name: str, rng: SeededRandom, profile: ValueProfile, pattern: Pattern) -> Plain:
    first = {"int": 1, "float": 1.0, "str": "ab", "bool": True, "None": None}.get(name)
    start = Plain("bytes", "ab") if name == "bytes" else from_value(first)
    for _ in range(rng.between(1, 4)):
        start = mutate(start, _PlaceProfile(profile, pattern), rng)
    return start


class _PlaceProfile(ValueProfile):
    """The profile of one place, for a value that is made by itself."""

    def __init__(self, profile: ValueProfile, pattern: Pattern) -> None:
        super().__init__(())
        self._outer, self._pattern = profile, pattern

    def at(self, pattern: Pattern) -> ValueFacts:
        return self._outer.at((*self._pattern, *pattern))
