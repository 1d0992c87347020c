"""Shell scripts with `{{ }}` in them: a value reaches the shell as data, never as code.

    echo "{{ item }}"    becomes    ABREAST_1='...'
                                    echo "${ABREAST_1}"

The variables are not exported, so no child inherits them and no limit of the environment applies to
them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from abreast.jobs.files.expressions import ExpressionFailed, ExpressionInvalid, find_blocks
from abreast.jobs.files.filters import to_json
from abreast.jobs.files.fuel import MAX_TEXT_LENGTH, Fuel, Value, kind_of, text_of
from abreast.jobs.files.terms import NameScope
from abreast.jobs.workflow.shell.scanner import Scanner, ScriptInvalid, ValueForm, ValueSlot

__all__ = ["Script", "ScriptInvalid", "parse_script"]

_WHOLE_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
_NUMBER_LIMIT: Final = 2**63


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed shell script; `render` returns the script for `sh`, with the values in it."""

    text: str
    pieces: tuple[str | ValueSlot, ...] = field(repr=False)
    names: frozenset[tuple[str, ...]]
    """The paths it reads, as far as they are written out."""
    warnings: tuple[tuple[int, str], ...] = ()
    """Offsets where a value may not do what was meant, and why."""

    def render(self, names: Mapping[str, Value]) -> str:
        """Return the script for `sh`.

        Pass it in a file or on stdin: it may be longer than an argument can be.
        """
        scope = NameScope(names, Fuel())
        rendered: list[str] = []
        variables: dict[str, str] = {}
        assignments: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                rendered.append(piece)
                continue
            value = piece.expression.term.value(scope)
            if piece.form is ValueForm.RAW:
                rendered.append(_shell_text(value, scope.fuel))
            elif piece.form is ValueForm.NUMBER:
                rendered.append(f"({_whole_number(value)})")
            else:
                if piece.inner not in variables:
                    variables[piece.inner] = f"ABREAST_{len(variables) + 1}"
                    text = _shell_text(value, scope.fuel)
                    assignments.append(f"{variables[piece.inner]}={_quote(text)}\n")
                rendered.append(_EXPANSION_FORMS[piece.form] % variables[piece.inner])
        script = "".join(assignments + rendered)
        if len(script) > MAX_TEXT_LENGTH:
            raise ExpressionFailed(f"the script is longer than {MAX_TEXT_LENGTH} characters")
        return script


_EXPANSION_FORMS: Final = {
    ValueForm.BARE: '"${%s}"',
    ValueForm.DOUBLE: "${%s}",
    ValueForm.SINGLE: "'\"${%s}\"'",
}


def parse_script(text: str) -> Script:
    """Parse a shell script, with or without blocks.

    ScriptInvalid says where no value can be, and what to do instead.
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
    return Script(
        text, tuple(_join_texts(scanner.pieces)), names, tuple(sorted(set(scanner.warnings)))
    )


def _join_texts(pieces: list[str | ValueSlot]) -> Iterator[str | ValueSlot]:
    for is_text, some in groupby(pieces, lambda piece: isinstance(piece, str)):
        if is_text:
            yield "".join(str(piece) for piece in some)
        else:
            yield from some


def _shell_text(value: Value, fuel: Fuel) -> str:
    """Return a value as the shell gets it: lists and mappings as JSON, all else as in any text."""
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
    """Return the number for a formula; any other text could be a formula itself."""
    is_text = isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value)
    is_number = (
        isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    )
    if not (is_text or is_number) or abs(int(value)) >= _NUMBER_LIMIT:
        raise ExpressionFailed(f"a value in $(( )) must be a whole number, not {kind_of(value)}")
    return int(value)
