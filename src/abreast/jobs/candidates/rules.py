"""The rules of the comparison: which differences count. All do, unless relaxed by name."""

import math
import struct
from dataclasses import dataclass, fields, replace
from typing import Literal, Self, TypeAlias

from abreast.jobs.candidates.values.snapshot import SnapshotNode, block_bytes, block_format

ExceptionRule: TypeAlias = Literal["args", "message", "type"]


@dataclass(frozen=True, slots=True)
class Rules:
    """Which differences count.

    There is one rule for floats, wherever they are: exact, or close by these tolerances.

    `STRICT.without("dict_order", "sharing")` relaxes two by name; `LOOSE` has all of them relaxed.
    `exceptions` says how much of an exception counts: its arguments and attributes, only the
    message, or only the type.

    Attributes:
        dict_order: The order of a dict's keys.
        signed_zero: -0.0 differs from 0.0.
        sharing: Which mutable parts are the same object.
        cause: The `__cause__` of an exception.
        context: The `__context__` of an exception, unless the exception suppresses it.
        notes: The notes of an exception.
        class_identity: Two class objects of the same name differ (within one process).
        function_names: The `__qualname__` of a function.
        iterator_type: A generator differs from a list iterator that yields the same values.
    """

    relative: float = 0.0
    absolute: float = 0.0
    exceptions: ExceptionRule = "args"
    dict_order: bool = True
    signed_zero: bool = True
    sharing: bool = True
    cause: bool = True
    context: bool = True
    notes: bool = True
    class_identity: bool = True
    function_names: bool = True
    iterator_type: bool = True

    def __post_init__(self) -> None:
        if not (0 <= self.relative < math.inf and 0 <= self.absolute < math.inf):
            raise ValueError("a tolerance is a number, 0 or more")
        if self.exceptions not in ("args", "message", "type"):
            raise ValueError(
                f"exceptions are compared by args, message or type, not by {self.exceptions!r}"
            )

    def without(self, *names: str) -> Self:
        """Return these rules with the named ones relaxed. Raises `ValueError` for unknown names."""
        if unknown := set(names) - set(RELAXABLE):
            raise ValueError(
                f"no such rule: {', '.join(sorted(unknown))}; there are {', '.join(RELAXABLE)}"
            )
        # The rules that can be relaxed are all booleans.
        return replace(self, **dict.fromkeys(names, False))  # type: ignore[arg-type]

    @property
    def exact(self) -> bool:
        """Whether floats must be equal, not only close."""
        return not self.relative and not self.absolute

    def same_float(self, one: float, other: float) -> bool:
        """Compare floats: NaN equals NaN, zeros compare by sign, the rest is equal or close."""
        if one != one or other != other:  # noqa: PLR0124 - true of NaN alone
            return one != one and other != other  # noqa: PLR0124 - true of NaN alone
        if self.signed_zero and one == 0 == other:
            return math.copysign(1, one) == math.copysign(1, other)
        return math.isclose(one, other, rel_tol=min(self.relative, 1.0), abs_tol=self.absolute)


RELAXABLE = tuple(one.name for one in fields(Rules) if one.default is True)
STRICT = Rules()
LOOSE = STRICT.without(*RELAXABLE)
# For a function with the comment `# abreast: close`, unless other tolerances are given.
CLOSE_RELATIVE = 1e-9
CLOSE_ABSOLUTE = 1e-12


def seen_by(rules: Rules, node: SnapshotNode) -> SnapshotNode:
    """Return the node without the parts that these rules ignore."""
    if node.kind == "exception":
        return _exception_under(rules, node)
    if node.kind == "function" and not rules.function_names:
        return _without_attributes(node, {"__qualname__"})
    relaxed = node.kind == "iterator" and not rules.iterator_type
    return node._replace(type="iterator") if relaxed else node


def _exception_under(rules: Rules, node: SnapshotNode) -> SnapshotNode:
    relaxed = {"__cause__": rules.cause, "__context__": rules.context, "__notes__": rules.notes}
    gone = {name for name, counts in relaxed.items() if not counts}
    if not rules.cause or not rules.context:
        gone.add("__suppress_context__")
    if rules.exceptions == "message":
        gone = {*node.names} - {"<message>", *(relaxed.keys() - gone)}
    elif rules.exceptions == "type":
        gone = {*node.names} - (relaxed.keys() - gone)
    else:
        gone.add("<message>")
    return _without_attributes(node, gone)


def _without_attributes(node: SnapshotNode, names: set[str]) -> SnapshotNode:
    kept = [
        (name, at)
        for name, at in zip(node.names, node.attributes, strict=True)
        if name not in names
    ]
    return node._replace(
        names=tuple(name for name, _ in kept), attributes=tuple(at for _, at in kept)
    )


def first_difference(rules: Rules, one: SnapshotNode, other: SnapshotNode) -> int | None:
    """Return the index at which two blocks of numbers first differ; None if they are the same.

    Both blocks have the same format.
    """
    left, right = block_bytes(one), block_bytes(other)
    if left == right:
        return None
    form = block_format(one)
    pairs = zip(struct.iter_unpack(form, left), struct.iter_unpack(form, right), strict=False)
    end = None if len(left) == len(right) else min(len(left), len(right)) // struct.calcsize(form)
    differing = (
        at
        for at, (mine, yours) in enumerate(pairs)
        if not all(_same_number(rules, a, b) for a, b in zip(mine, yours, strict=True))
    )
    return next(differing, end)


def _same_number(rules: Rules, one: object, other: object) -> bool:
    if type(one) is float and type(other) is float:
        return rules.same_float(one, other)
    return one == other
