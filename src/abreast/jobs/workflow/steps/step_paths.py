"""Full ids of steps from the paths under which they are journaled: `fan/0003/check` is `fan:check:3`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from abreast.core.item import unescape

_BUDGET: Final = ":budget"  # ends the scope of a budget, which is around a step and no step
_BRANCHES: Final = frozenset({"if", "switch"})  # their steps are journaled beside them, not beneath
_LOOPS: Final = frozenset({"while", "do-while"})
_SCOPES: Final = _LOOPS | {"fan-out", "workflow"}

Outlined = Mapping[str, Any]
"""A step as `reach.outline` gives it."""


class StepPaths:
    """Which steps of a workflow the paths of its run belong to."""

    def __init__(self, outline: Sequence[Outlined], indexes: Mapping[str, int]) -> None:
        """`indexes` are the places of items by path: a fan-out with `key` names its items as it likes."""
        self._steps = _by_id(outline)
        self._indexes = indexes

    def ids(self, path: str) -> tuple[str, ...]:
        """The ids of the step at `path`, its full id first; none if no step is journaled there.

        A step in a loop has several: that of its round, and its plain id, which it shares with the
        other rounds.
        """
        parts = path.split("/")
        steps, around, at = self._steps, [("", "")], 1
        while at < len(parts):
            name = unescape(parts[at])
            at += 1
            step = steps.get(name)
            if step is None:
                if name.endswith(_BUDGET):
                    continue
                return ()
            if step["type"] not in _SCOPES:
                at += bool(step["budget"]) and at < len(parts)
                return (
                    tuple(f"{before}{name}{after}" for before, after in around)
                    if at == len(parts)
                    else ()
                )
            full = f"{around[0][0]}{name}{around[0][1]}"
            if step["type"] == "workflow":
                around = [(f"{full}:", "")]
            elif at < len(parts):
                at += 1
                around = self._within(step, full, around, "/".join(parts[:at]))
                if at == len(parts) and (alone := _alone(step)) is not None:
                    return (f"{around[0][0]}{alone}{around[0][1]}",)
            steps = _beneath(step)
        return ()

    def _within(
        self, step: Outlined, full: str, around: list[tuple[str, str]], path: str
    ) -> list[tuple[str, str]]:
        """What stands around the names of steps in a round or an item."""
        key = unescape(path.rpartition("/")[2])
        place = self._indexes.get(path, int(key) if key.isdecimal() else key)
        own = (f"{full}:", f":{place}")
        if step["type"] == "fan-out":
            return [own]
        return [*around, own] if place == 0 else [own, *around]


def _beneath(step: Outlined) -> dict[str, Outlined]:
    return {name: one for _, held in step["beneath"] for name, one in _by_id(held).items()}


def _by_id(steps: Sequence[Outlined]) -> dict[str, Outlined]:
    """The steps whose paths lie in one scope."""
    return {step["id"]: step for step in _reached(steps)}


def _reached(steps: Sequence[Outlined]) -> Iterator[Outlined]:
    for step in steps:
        yield step
        if step["type"] in _BRANCHES:
            for _, held in step["beneath"]:
                yield from _reached(held)


def _alone(step: Outlined) -> str | None:
    """The id of the one step of a fan-out that does something itself: it has no path but the item's."""
    held = (
        [one for _, steps in step["beneath"] for one in steps] if step["type"] == "fan-out" else []
    )
    return (
        held[0]["id"]
        if len(held) == 1 and not held[0]["beneath"] and not held[0]["budget"]
        else None
    )
