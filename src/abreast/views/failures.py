"""What went wrong in a run, grouped: failures of one type whose messages differ only in their numbers are one kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from abreast.core.events import Event
from abreast.views.run_reader import error_of

_KINDS: Final = 200  # told apart; all further ones are one
_LONGEST: Final = 160  # characters of a message that tell kinds apart
_NUMBER: Final = re.compile(r"\d+")
_OTHERS: Final = ("others", "")


@dataclass(slots=True)
class FailureKind:
    """One kind of failure: how many items ended so, how many attempts did and were tried again, and one of them."""

    type: str
    message: str
    path: str
    items: int = 0
    retried: int = 0
    last: float = 0.0


class Errors:
    """The kinds of failure, in the order in which they were first seen."""

    def __init__(self) -> None:
        """None yet."""
        self.kinds: list[FailureKind] = []
        self._places: dict[tuple[str, str], int] = {}

    def add(self, event: Event, *, retried: bool = False) -> int:
        """Count a failure; the place of its kind."""
        error = error_of(event)
        message = error.message.strip().partition("\n")[0]
        key = (error.kind, _NUMBER.sub("#", message[:_LONGEST]))
        if key not in self._places and len(self.kinds) >= _KINDS:
            key = _OTHERS
        at = self._places.get(key)
        if at is None:
            at = self._places[key] = len(self.kinds)
            self.kinds.append(FailureKind(error.kind, message[:_LONGEST], event.path))
        kind = self.kinds[at]
        kind.last = event.wall
        if retried:
            kind.retried += 1
        else:
            kind.items += 1
        return at
