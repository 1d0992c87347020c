"""Shell texts with `{{ }}` in them: a value reaches the shell as data, never as code.

    echo "{{ item }}"    becomes    ABREAST_1='...'
                                    echo "${ABREAST_1}"

The variables are not exported, so no child inherits them and no limit of the environment applies to
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from abreast.jobs.files.expressions import ExpressionFailed, ExpressionInvalid, find_blocks
from abreast.jobs.files.filters import to_json
from abreast.jobs.files.fuel import LARGEST_TEXT, Fuel, Value, kind_of, text_of
from abreast.jobs.files.terms import NameScope
from abreast.jobs.workflow.shell.scanner import Scanner, ScriptInvalid, ValueForm, ValueSlot

__all__ = ["Script", "ScriptInvalid", "parse_script"]

_WHOLE_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_LARGEST_NUMBER: Final = 2**63


@dataclass(frozen=True, slots=True)
class Script:
    """A shell text; `render` gives the script for `sh`, with the values in it."""

    text: str
    pieces: tuple[str | ValueSlot, ...] = field(repr=False)
    names: frozenset[tuple[str, ...]]
    """The paths it reads, as far as they are written out."""
    warnings: tuple[tuple[int, str], ...] = ()
    """Places where a value may not do what was meant, and why."""

    def render(self, names: Mapping[str, Value]) -> str:
        """The script to hand to `sh`, from a file or its input: it may be longer than an argument can be."""
        frame = NameScope(names, Fuel())
        made: list[str] = []
        variables: dict[str, str] = {}
        assignments: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                made.append(piece)
                continue
            value = piece.expression.term.value(frame)
            if piece.form is ValueForm.RAW:
                made.append(_shell_text(value, frame.fuel))
            elif piece.form is ValueForm.NUMBER:
                made.append(f"({_whole_number(value)})")
            else:
                if piece.inner not in variables:
                    variables[piece.inner] = f"ABREAST_{len(variables) + 1}"
                    text = _shell_text(value, frame.fuel)
                    assignments.append(f"{variables[piece.inner]}={_quote(text)}\n")
                made.append(_QUOTED[piece.form] % variables[piece.inner])
        script = "".join(assignments + made)
        if len(script) > LARGEST_TEXT:
            raise ExpressionFailed(f"the script is longer than {LARGEST_TEXT} characters")
        return script


_QUOTED: Final = {
    ValueForm.BARE: '"${%s}"',
    ValueForm.DOUBLE: "${%s}",
    ValueForm.SINGLE: "'\"${%s}\"'",
}


def parse_script(text: str) -> Script:
    """A shell text, with or without blocks.

    ScriptInvalid says where no value can stand, and what to do instead.
    """
    try:
        blocks = {block.start: block for block in find_blocks(text)}
        if not blocks:
            return Script(text, (text,), frozenset())
        scanner = Scanner(text, blocks)
        scanner.scan()
    except ScriptInvalid:
        raise
    except ExpressionInvalid as error:
        raise ScriptInvalid(str(error), error.at) from None
    slots = [piece for piece in scanner.pieces if isinstance(piece, ValueSlot)]
    names = frozenset(path for slot in slots for path in slot.expression.paths())
    return Script(text, tuple(_joined(scanner.pieces)), names, tuple(sorted(set(scanner.warnings))))


def _joined(pieces: list[str | ValueSlot]) -> Iterator[str | ValueSlot]:
    for is_text, some in groupby(pieces, lambda piece: isinstance(piece, str)):
        if is_text:
            yield "".join(str(piece) for piece in some)
        else:
            yield from some


def _shell_text(value: Value, fuel: Fuel) -> str:
    """A value as the shell gets it: lists and mappings as JSON, all else as within any text."""
    is_nested = isinstance(value, Mapping | list | tuple)
    text = to_json(fuel, value) if is_nested else text_of(value, fuel)
    if "\0" in text:
        raise ExpressionFailed("the value holds a NUL character, which no shell can take")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ExpressionFailed("the value holds half a character, which is no text") from None
    return text


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _whole_number(value: Value) -> int:
    """The number for a formula; anything else could be a formula of its own."""
    is_text = isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value)
    is_number = (
        isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    )
    if not (is_text or is_number) or abs(int(value)) >= _LARGEST_NUMBER:
        raise ExpressionFailed(f"a value in $(( )) must be a whole number, not {kind_of(value)}")
    return int(value)
