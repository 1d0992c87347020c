"""Names of files, which may have anything in them: as words for a command, and as something to print."""

from __future__ import annotations


def as_word(path: str) -> str:
    """A path that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def is_one_line(path: str) -> bool:
    """Whether a path is text without control characters or spaces at its ends, so that it can be read back as shown."""
    return path.isprintable() and path == path.strip()


def printable(text: str) -> str:
    """A text on one line, with escapes for what a terminal would obey and for bytes that are no text."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
