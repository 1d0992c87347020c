"""Placeholders in commands, prompts and keys; values become arguments, never shell code."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from abreast.cli.errors import UsageError
from abreast.core.frozen import record
from abreast.run.current import CurrentItem


@record(frozen=True, slots=True)
class UnstartedItem:
    """An item that has not started."""

    index: int
    key: str
    attempt: int = 1
    seed: int = 0


TemplateItem: TypeAlias = CurrentItem | UnstartedItem

_PLACEHOLDER: Final = re.compile(
    r"\{(?P<name>#|key|attempt|seed|/|//|/\.|\.|(?:\.[A-Za-z0-9_$-]+)+|)\}"
)
_ABOUT: Final[Mapping[str, Callable[[TemplateItem], str]]] = {
    "#": lambda item: str(item.index + 1),
    "key": lambda item: item.key,
    "attempt": lambda item: str(item.attempt),
    "seed": lambda item: str(item.seed),
}
_GENERATED: Final = frozenset({"#", "attempt", "seed"})  # numbers that abreast generates
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})
_CODE_OPTION: Final = re.compile(r"-[a-zA-Z]*c")
_PATHS: Final[Mapping[str, Callable[[PurePosixPath], PurePosixPath]]] = {
    ".": lambda path: path.with_suffix(""),
    "/": lambda path: PurePosixPath(path.name),
    "//": lambda path: path.parent,
    "/.": lambda path: PurePosixPath(path.stem),
}


class ItemTemplate:
    """Texts with placeholders.

    `{}` is the whole item, `{.field}` a field of a JSON item (`{.user.name}`, `{.tags.0}`), `{#}`
    the item's number from 1, `{key}` its key, `{attempt}` the number of the attempt, `{seed}` the
    item's own seed. For lines that are paths also GNU parallel's `{.}` (without extension), `{/}`
    (name), `{//}` (directory), `{/.}` (name without extension). Other braces are left as they are.
    """

    def __init__(
        self, texts: Sequence[str], *, json_items: bool, option: str, add_item: bool = False
    ) -> None:
        """Check the placeholders.

        With `add_item`, `{}` is appended if no placeholder names the item.
        """
        names = [match["name"] for text in texts for match in _PLACEHOLDER.finditer(text)]
        for name in names:
            if name.startswith(".") and name != "." and not json_items:
                raise UsageError(
                    f"{option}: {{{name}}} is a field of a JSON item; "
                    "add --jsonl, or write {} for the whole line"
                )
            if name in _PATHS and json_items:
                raise UsageError(
                    f"{option}: {{{name}}} works on lines that are paths, not with --jsonl; "
                    "write {.field}"
                )
        if add_item:
            _refuse_shell_code(texts)
        if add_item and all(name in _ABOUT for name in names):
            texts = (*texts, "{}")
        self.texts = tuple(texts)
        self._parts = tuple(_split(text) for text in self.texts)

    @property
    def constants(self) -> tuple[str, ...]:
        """The texts without placeholders."""
        return tuple(parts[0] for parts in self._parts if len(parts) == 1)

    @property
    def uses_item(self) -> bool:
        """Whether a placeholder stands for the item or a part of it."""
        return any(part not in _ABOUT for parts in self._parts for part in parts[1::2])

    @property
    def names_item(self) -> bool:
        """Whether all placeholders, at least one, stand for the item or a part of it."""
        names = {part for parts in self._parts for part in parts[1::2]}
        return bool(names) and not names & set(_ABOUT)

    @property
    def shared_prefix(self) -> int:
        """How many characters the first text begins with for every item."""
        return len(self._parts[0][0])

    def fill(self, value: object, item: TemplateItem) -> list[str]:
        """The texts for one item.

        Raises ValueError for a field that the item lacks, or text that no argument can hold.
        """
        return [parts[0] if len(parts) == 1 else _fill(parts, value, item) for parts in self._parts]


def _refuse_shell_code(texts: Sequence[str]) -> None:
    """Raise `UsageError` for an item's text inside shell code, where it would be executed."""
    if not texts or PurePosixPath(texts[0]).name not in _SHELLS:
        return
    code = next(
        (text for option, text in pairwise(texts[1:]) if _CODE_OPTION.fullmatch(option)), ""
    )
    if any(match["name"] not in _GENERATED for match in _PLACEHOLDER.finditer(code)):
        name = texts[0]
        raise UsageError(
            f"the command: {code!r} is shell code, in which an item's text would be run; "
            f"hand it over as an argument: {name} -c '... \"$1\" ...' {name} {{}}"
        )


def _split(text: str) -> tuple[str, ...]:
    """Plain text and the names of placeholders, alternating."""
    parts: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(text):
        parts += (text[end : match.start()], match["name"])
        end = match.end()
    return (*parts, text[end:])


def _fill(parts: tuple[str, ...], value: object, item: TemplateItem) -> str:
    filled = parts[0]
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        filled += _value_of(name, value, item) + text
    if "\0" in filled:
        raise ValueError("it contains a NUL character, which no argument can")
    if not filled.isascii():
        try:
            os.fsencode(filled)
        except UnicodeEncodeError:
            raise ValueError("it contains half a surrogate pair, which is no text") from None
    return filled


def _value_of(name: str, value: object, item: TemplateItem) -> str:
    if name == "":
        return _text(value)
    if name in _ABOUT:
        return _ABOUT[name](item)
    if name in _PATHS:
        return (
            str(_PATHS[name](PurePosixPath(_text(value))))
            if _text(value) not in ("", ".", "..", "/")
            else _text(value)
        )
    return _text(_field(value, name))


def value_at(place: str, value: object) -> object:
    """The item, for `{}`, or the part of it that `{.field}` names.

    Raises `UsageError` for another text, and ValueError for a field that the item lacks.
    """
    match = _PLACEHOLDER.fullmatch(place)
    if match is None or (match["name"] and not match["name"][1:]) or match["name"] in _ABOUT:
        raise UsageError(f"--messages: write {{}} or {{.field}}, not {place!r}")
    return _field(value, match["name"]) if match["name"] else value


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
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    )
