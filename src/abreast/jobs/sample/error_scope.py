"""Decides what an error of a draw concerns: that draw, its branch, or the whole sample. Pure."""

from typing import Final, Literal, TypeAlias

from abreast.core import errors
from abreast.core.errors import (
    AbreastError,
    ConnectionLost,
    RecordedError,
    Refused,
    ReplyBroken,
    ReplyInvalid,
    ReplyTimeout,
    ServerFault,
    Throttled,
    TooLong,
)

Concern: TypeAlias = Literal["draw", "branch", "sample"]
"""`draw`: it uses its round and is repaired. `branch`: it ends its branch.

`sample`: every draw would fail with it.
"""

_DRAW_ERRORS: Final = (Refused, ReplyBroken, ReplyInvalid)
"""A reply came but can't be used: declined, empty, unreadable, too long, or not by the schema.

The next one may be usable.
"""
_BRANCH_ERRORS: Final = (ServerFault, ConnectionLost, ReplyTimeout, Throttled, TooLong)
"""No reply came, after all retries, or the branch's conversation is too long for the model."""


def concern_of(error: BaseException) -> Concern:
    """Return what an error concerns. An unknown error, such as a bug, concerns all draws.

    >>> concern_of(Refused("not this")), concern_of(ServerFault("down"))
    ('draw', 'branch')
    >>> concern_of(KeyError("a bug in a check"))
    'sample'
    """
    if isinstance(error, _DRAW_ERRORS):
        return "draw"
    return "branch" if isinstance(error, _BRANCH_ERRORS) else "sample"


def error_text(error: BaseException) -> str:
    """Return an error as an attempt stores it: its type's full name and its message."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}".removeprefix("builtins.")


def error_from(text: str) -> AbreastError:
    """Return the error for such a text; an error of abreast's own gets its type again."""
    kind, _, message = text.partition(": ")
    module, _, name = kind.rpartition(".")
    own = vars(errors).get(name) if module == errors.__name__ else None
    if (
        isinstance(own, type)
        and issubclass(own, AbreastError)
        and own not in (AbreastError, RecordedError)
    ):
        try:
            return own(message)
        except TypeError:  # it takes more than a message
            pass
    return RecordedError(kind, message)
