"""File names, which may contain any bytes: safe as arguments and for printing; their parents."""

from collections.abc import Iterator


def as_word(path: str) -> str:
    """The path as an argument that no command reads as an option."""
    return f"./{path}" if path.startswith("-") else path


def is_one_line(path: str) -> bool:
    """Whether a path can be read back as printed: no control characters, no spaces at its ends."""
    return path.isprintable() and path == path.strip()


def printable(text: str) -> str:
    """A text on one line; control characters and bytes that are no text are escaped."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def folders_above(path: str) -> Iterator[str]:
    """The directories above a path, the nearest first, without the root."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
