r"""Escapes control characters in recorded text that is printed on a terminal.

Output of a model or a command may contain escape sequences that clear the screen, set the window's
title or send input to the terminal, and marks that change the direction of writing. On a terminal
they are printed as `\x1b`. Output to a pipe or a file is not changed.
"""

import os
import re
from typing import Final

_DIRECTION_MARKS: Final = (
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks that override the direction of writing
)
_NOT_ESCAPED_BY_JSON: Final = (
    f"\x7f-\x9f\u2028\u2029{_DIRECTION_MARKS}"  # control characters that JSON allows
)
_ESCAPED: Final = re.compile(
    f"[\x00-\x08\x0b\x0c\x0e-\x1f{_NOT_ESCAPED_BY_JSON}\udc80-\udcff]|\r(?!\n)"
)
_ESCAPED_IN_JSON: Final = re.compile(f"[{_NOT_ESCAPED_BY_JSON}]")


def visible(text: str) -> str:
    r"""The text with its control characters escaped; newlines and tabs stay.

    >>> visible("\x1b[2Jgone?\n")
    '\\x1b[2Jgone?\n'
    """
    return _ESCAPED.sub(_escape, text)


def visible_json(line: str) -> str:
    """Equal JSON, in which the control characters that JSON allows are escaped like the others."""
    return _ESCAPED_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def for_file(descriptor: int, data: bytes) -> bytes:
    """What to write to an open file: escaped if it is a terminal, else unchanged."""
    if not os.isatty(descriptor):
        return data
    return visible(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004 - a byte read by `surrogateescape`
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 - one byte
