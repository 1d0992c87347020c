"""Whom an error of a draw concerns: that draw, its branch, or every draw of the sample. Pure."""

from __future__ import annotations

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

`sample`: every draw would meet it.
"""

_DRAW: Final = (Refused, ReplyBroken, ReplyInvalid)
"""A reply came, and it is of no use: declined, empty, unreadable, too long, or not by the schema.

The next may be.
"""
_BRANCH: Final = (ServerFault, ConnectionLost, ReplyTimeout, Throttled, TooLong)
"""No reply came, after all retries.

Or the branch's own conversation has grown beyond what the model can take.
"""


def concern_of(error: BaseException) -> Concern:
    """Whom it concerns. What is not known to be one draw's or one branch's own, such as a bug, concerns all.

    >>> concern_of(Refused("not this")), concern_of(ServerFault("down")), concern_of(KeyError("a bug in a check"))
    ('draw', 'branch', 'sample')
    """
    if isinstance(error, _DRAW):
        return "draw"
    return "branch" if isinstance(error, _BRANCH) else "sample"


def error_text(error: BaseException) -> str:
    """An error as an attempt keeps it: its type's full name and its message."""
    return f"{type(error).__module__}.{type(error).__qualname__}: {error}".removeprefix("builtins.")


def error_from(text: str) -> AbreastError:
    """The error that such a text stands for; one of abreast's own is of its type again."""
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
