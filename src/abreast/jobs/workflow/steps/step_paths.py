"""Translates journal paths into full ids of steps: `fan/0003/check` is `fan:check:3`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from abreast.core.item import unescape

BUDGET_SUFFIX: Final = ":budget"  # of the path of a budget's scope, which contains a step
BRANCHES: Final = frozenset({"if", "switch"})  # their steps are journaled beside them, not beneath
LOOPS: Final = frozenset({"while", "do-while"})
_SCOPES: Final = LOOPS | {"fan-out", "workflow"}

Outlined = Mapping[str, Any]
"""A step as `load.analysis.outline` returns it."""


class StepPaths:
    """Finds the step of a workflow that a path of its run belongs to."""

    def __init__(self, outline: Sequence[Outlined], indexes: Mapping[str, int]) -> None:
        """`indexes` are the positions of items by path; the path of an item with `key` has none."""
        self._steps = _by_id(outline)
        self._indexes = indexes

    def ids(self, path: str) -> tuple[str, ...]:
        """Return the ids of the step at `path`, its full id first; () if there is no step.

        A step in a loop has several: that of its round, and its plain id, which all rounds share.
        """
        parts = path.split("/")
        steps, affixes, at = self._steps, [("", "")], 1
        while at < len(parts):
            name = unescape(parts[at])
            at += 1
            step = steps.get(name)
            if step is None:
                if name.endswith(BUDGET_SUFFIX):
                    continue
                return ()
            if step["type"] not in _SCOPES:
                at += bool(step["budget"]) and at < len(parts)
                return (
                    tuple(f"{prefix}{name}{suffix}" for prefix, suffix in affixes)
                    if at == len(parts)
                    else ()
                )
            full = f"{affixes[0][0]}{name}{affixes[0][1]}"
            if step["type"] == "workflow":
                affixes = [(f"{full}:", "")]
            elif at < len(parts):
                at += 1
                affixes = self._affixes_within(step, full, affixes, "/".join(parts[:at]))
                if at == len(parts) and (action := _single_action(step)) is not None:
                    return (f"{affixes[0][0]}{action}{affixes[0][1]}",)
            steps = _by_id([one for _, held in step["beneath"] for one in held])
        return ()

    def _affixes_within(
        self, step: Outlined, full: str, affixes: list[tuple[str, str]], path: str
    ) -> list[tuple[str, str]]:
        """Return the prefixes and suffixes of step names in a round or an item."""
        key = unescape(path.rpartition("/")[2])
        place = self._indexes.get(path, int(key) if key.isdecimal() else key)
        own = (f"{full}:", f":{place}")
        if step["type"] == "fan-out":
            return [own]
        return [*affixes, own] if place == 0 else [own, *affixes]


def _by_id(steps: Sequence[Outlined]) -> dict[str, Outlined]:
    """Return the steps whose paths lie in one scope, by id."""
    return {step["id"]: step for step in _in_scope(steps)}


def _in_scope(steps: Sequence[Outlined]) -> Iterator[Outlined]:
    for step in steps:
        yield step
        if step["type"] in BRANCHES:
            for _, held in step["beneath"]:
                yield from _in_scope(held)


def _single_action(step: Outlined) -> str | None:
    """Return the id of a fan-out's single action, whose path is the item's own."""
    held = (
        [one for _, steps in step["beneath"] for one in steps] if step["type"] == "fan-out" else []
    )
    return (
        held[0]["id"]
        if len(held) == 1 and not held[0]["beneath"] and not held[0]["budget"]
        else None
    )
