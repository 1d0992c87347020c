"""An item: one unit of work with a stable key; and paths made of keys."""

from typing import Generic, TypeVar

from abreast.core.frozen import record

T = TypeVar("T")

_KEY_DIGITS = 4


@record(frozen=True, slots=True)
class Item(Generic[T]):
    """A value to work on, the key it is recorded under, and the lane whose limits it needs.

    `map` makes one from each plain value. Pass `Item`s yourself to choose their keys and lanes:

        run.map(fetch, [Item("home", "/"), Item("news", "/news", lane="slow")], width=2)
    """

    key: str | None
    """Its name, unique in its map; None for its position."""
    value: T
    """What the function gets."""
    lane: str | None = None
    """The lane whose limits it holds; None for that of the map."""


def position_key(index: int) -> str:
    """The key of an item that was given none: its position, padded so that keys sort as numbers."""
    text = str(index)
    # Half the time of a format specification.
    return text if len(text) >= _KEY_DIGITS else text.zfill(_KEY_DIGITS)


def join_path(*parts: str) -> str:
    """Join parts to a path.

    A slash or a percent sign inside a part is escaped, so that paths never collide.
    """
    return "/".join(escape(part) for part in parts)


def escape(part: str) -> str:
    """Escape the slashes and percent signs in one part of a path."""
    if "/" in part or "%" in part:
        return part.replace("%", "%25").replace("/", "%2F")
    return part


def unescape(part: str) -> str:
    """Undo `escape`."""
    return part.replace("%2F", "/").replace("%25", "%")
