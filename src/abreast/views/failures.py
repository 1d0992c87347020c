"""The failures of a run, grouped by kind.

Failures of one type whose messages differ only in their numbers are of one kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from abreast.core.events import Event
from abreast.views.run_reader import error_of

_MAX_KINDS: Final = 200  # counted separately; all further ones are counted as one
_MESSAGE_CHARACTERS: Final = 160  # of a message that are compared and kept
_NUMBER: Final = re.compile(r"\d+")
_OTHERS: Final = ("others", "")


@dataclass(slots=True)
class FailureKind:
    """One kind of failure: how many items failed so, how many attempts were retried, an example."""

    type: str
    message: str
    path: str
    items: int = 0
    retried: int = 0
    last: float = 0.0


class FailureKinds:
    """The kinds of failure, in the order in which they were first seen."""

    def __init__(self) -> None:
        """Start with no kinds."""
        self.kinds: list[FailureKind] = []
        self._places: dict[tuple[str, str], int] = {}

    def add(self, event: Event, *, retried: bool = False) -> int:
        """Count a failure; return the index of its kind."""
        error = error_of(event)
        message = error.message.strip().partition("\n")[0]
        key = (error.kind, _NUMBER.sub("#", message[:_MESSAGE_CHARACTERS]))
        if key not in self._places and len(self.kinds) >= _MAX_KINDS:
            key = _OTHERS
        at = self._places.get(key)
        if at is None:
            at = self._places[key] = len(self.kinds)
            self.kinds.append(FailureKind(error.kind, message[:_MESSAGE_CHARACTERS], event.path))
        kind = self.kinds[at]
        kind.last = event.wall
        if retried:
            kind.retried += 1
        else:
            kind.items += 1
        return at
