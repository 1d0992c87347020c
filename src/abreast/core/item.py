"""One unit of work with a stable name."""

from __future__ import annotations

from typing import Generic, TypeVar

from abreast.core.frozen import record

T = TypeVar("T")

_DIGITS = 4


@record(frozen=True, slots=True)
class Item(Generic[T]):
    """A value to work on, the key it is recorded under, and the lane whose limits it needs.

    `map` makes one from each plain value. Hand in `Item`s yourself to choose keys and lanes one by one:

        run.map(fetch, [Item("home", "/"), Item("news", "/news", lane="slow")], width=2)
    """

    key: str | None
    value: T
    lane: str | None = None


def position_key(index: int) -> str:
    """The key of an item that was given none: its position, padded so that names sort as numbers do."""
    text = str(index)
    return (
        text if len(text) >= _DIGITS else text.zfill(_DIGITS)
    )  # half the time of a format specification


def join_path(*parts: str) -> str:
    """A path from its parts.

    A slash or a percent sign inside a part is escaped, so that paths never collide.
    """
    return "/".join(escape(part) for part in parts)


def escape(part: str) -> str:
    """One part of a path, its slashes escaped."""
    if "/" in part or "%" in part:
        return part.replace("%", "%25").replace("/", "%2F")
    return part


def unescape(part: str) -> str:
    """The part as it was before `escape`."""
    return part.replace("%2F", "/").replace("%25", "%")
