"""Placeholders: what of an item goes where in a command.

Values become arguments, never shell code.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final, Protocol

from abreast.cli.errors import UsageError
from abreast.core.frozen import record


class Where(Protocol):
    """The item that a template is filled in for."""

    @property
    def index(self) -> int:
        """Its place, from 0."""

    @property
    def key(self) -> str:
        """Its key."""

    @property
    def attempt(self) -> int:
        """Which attempt it is, from 1."""

    @property
    def seed(self) -> int:
        """Its own seed."""


@record(frozen=True, slots=True)
class Planned:
    """An item that isn't under way."""

    index: int
    key: str
    attempt: int = 1
    seed: int = 0


_MARK: Final = re.compile(r"\{(?P<name>#|key|attempt|seed|/|//|/\.|\.|(?:\.[A-Za-z0-9_$-]+)+|)\}")
_ABOUT: Final[Mapping[str, Callable[[Where], str]]] = {
    "#": lambda where: str(where.index + 1),
    "key": lambda where: where.key,
    "attempt": lambda where: str(where.attempt),
    "seed": lambda where: str(where.seed),
}
_OURS: Final = frozenset({"#", "attempt", "seed"})  # numbers that we made
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})
_TAKES_CODE: Final = re.compile(r"-[a-zA-Z]*c")
_PATHS: Final[Mapping[str, Callable[[PurePosixPath], PurePosixPath]]] = {
    ".": lambda path: path.with_suffix(""),
    "/": lambda path: PurePosixPath(path.name),
    "//": lambda path: path.parent,
    "/.": lambda path: PurePosixPath(path.stem),
}


class ItemTemplate:
    """Some texts with placeholders in them.

    `{}` is the whole item, `{.field}` a field of a JSON item (`{.user.name}`, `{.tags.0}`), `{#}` the item's number
    from 1, `{key}` its key, `{attempt}` the number of the attempt, `{seed}` the item's own seed. For lines that are
    paths also GNU parallel's `{.}` (without extension), `{/}` (name), `{//}` (directory), `{/.}` (name without
    extension). Any other braces stand for themselves.
    """

    def __init__(
        self, texts: Sequence[str], *, json_items: bool, option: str, add_item: bool = False
    ) -> None:
        """Check the placeholders.

        With `add_item`, `{}` is added where none of them names the item.
        """
        names = [match["name"] for text in texts for match in _MARK.finditer(text)]
        for name in names:
            if name.startswith(".") and name != "." and not json_items:
                raise UsageError(
                    f"{option}: {{{name}}} is a field of a JSON item; add --jsonl, or write {{}} for the whole line"
                )
            if name in _PATHS and json_items:
                raise UsageError(
                    f"{option}: {{{name}}} works on lines that are paths, not with --jsonl; write {{.field}}"
                )
        if add_item:
            _refuse_code(texts)
        if add_item and all(name in _ABOUT for name in names):
            texts = (*texts, "{}")
        self.texts = tuple(texts)
        self._parts = tuple(_split(text) for text in self.texts)

    @property
    def uses_item(self) -> bool:
        """Whether anything of the item itself goes into it."""
        return any(part not in _ABOUT for parts in self._parts for part in parts[1::2])

    @property
    def names_item(self) -> bool:
        """Whether it depends on what the item is, and on nothing else about it."""
        names = {part for parts in self._parts for part in parts[1::2]}
        return bool(names) and not names & set(_ABOUT)

    def fill(self, value: object, where: Where) -> list[str]:
        """The texts for one item.

        A ValueError for a field that it doesn't have, or text that no argument can hold.
        """
        return [
            parts[0] if len(parts) == 1 else _fill(parts, value, where) for parts in self._parts
        ]


def _refuse_code(texts: Sequence[str]) -> None:
    """Refuse an item's text in the code of a shell: there it would be run, whatever it says."""
    if not texts or PurePosixPath(texts[0]).name not in _SHELLS:
        return
    code = next((text for option, text in pairwise(texts[1:]) if _TAKES_CODE.fullmatch(option)), "")
    if any(match["name"] not in _OURS for match in _MARK.finditer(code)):
        name = texts[0]
        raise UsageError(
            f"the command: {code!r} is shell code, in which an item's text would be run; hand it over as an "
            f"argument: {name} -c '... \"$1\" ...' {name} {{}}"
        )


def _split(text: str) -> tuple[str, ...]:
    """Plain text and names of placeholders in turn."""
    parts: list[str] = []
    end = 0
    for match in _MARK.finditer(text):
        parts += (text[end : match.start()], match["name"])
        end = match.end()
    return (*parts, text[end:])


def _fill(parts: tuple[str, ...], value: object, where: Where) -> str:
    filled = parts[0]
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        filled += _worth(name, value, where) + text
    if "\0" in filled:
        raise ValueError("it contains a NUL character, which no argument can")
    if not filled.isascii():
        try:
            os.fsencode(filled)
        except UnicodeEncodeError:
            raise ValueError("it contains half a surrogate pair, which is no text") from None
    return filled


def _worth(name: str, value: object, where: Where) -> str:
    if name == "":
        return _text(value)
    if name in _ABOUT:
        return _ABOUT[name](where)
    if name in _PATHS:
        return (
            str(_PATHS[name](PurePosixPath(_text(value))))
            if _text(value) not in ("", ".", "..", "/")
            else _text(value)
        )
    return _text(_field(value, name))


def _field(value: object, name: str) -> object:
    for step in name[1:].split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise ValueError(f"it has no field {name}")
    return value


def _text(value: object) -> str:
    """Text as it is, everything else as JSON."""
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
