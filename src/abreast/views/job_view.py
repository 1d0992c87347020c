"""What the views of jobs share: a fold that is fed events, and values made fit to be sent, whatever a run holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from abreast.core.errors import StoreError
from abreast.core.events import Event
from abreast.store.port import RunRow
from abreast.views.run_reader import error_of, value_of


class JobFold(Protocol):
    """One job's run as far as it was read: fed once, in order, and asked for its picture as often as one likes."""

    KINDS: ClassVar[frozenset[str]]
    """The events that it wants to see."""

    def add(self, event: Event) -> None:
        """Take in the next event of these kinds."""

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """The picture in JSON's own types, bounded whatever the run's size.

        `state` is the run's, for people.
        """


def short(text: object, most: int) -> str:
    """A text of at most so many characters; one that is longer ends in an ellipsis."""
    said = text if isinstance(text, str) else "" if text is None else str(text)
    return said if len(said) <= most else f"{said[: most - 1]}…"


def number(value: object) -> float | None:
    """A number that JSON can say; None for all else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def whole(value: object) -> int | None:
    """A whole number; None for all else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping, empty for all else: what is recorded may have been written by another version, or by hand."""
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """A list, empty for all else."""
    return list(value) if isinstance(value, (list, tuple)) else []


def value_in(event: Event) -> object:
    """The value that an event carries; None if it can't be read."""
    try:
        return value_of(event)
    except StoreError:
        return None


def failure_in(event: Event) -> str:
    """What failed, in words: the message, or the kind if there is none."""
    try:
        error = error_of(event)
    except StoreError:
        return "a failure that can't be read"
    return error.message or error.kind


def manifest_of(run: RunRow, kind: str) -> Mapping[str, Any]:
    """What a run keeps of its job."""
    return mapping(run.manifest.get(kind))


def many(count: int, noun: str) -> str:
    """`1 branch`, `2 branches`."""
    ending = "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{ending}"
