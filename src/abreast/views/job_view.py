"""What the views of jobs share: `JobView`, `LiveText`, a table, and readers for recorded values.

The readers accept whatever a run holds and return values that can be sent as JSON.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, ClassVar, Protocol

from abreast.core.errors import StoreError
from abreast.core.events import Event
from abreast.store.port import RunRow
from abreast.views.run_reader import error_of, value_of


class JobView(Protocol):
    """One job's run as far as its journal was read.

    Events are added once, in order; `plain` may be called at any time between them.
    """

    KINDS: ClassVar[frozenset[str]]
    """The kinds of events that `add` takes."""

    def add(self, event: Event) -> None:
        """Add the next event of these kinds."""

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """What the page shows, in JSON's own types, of bounded size however large the run is.

        `state` is the run's state as users see it (`crashed` for a run without a driver).
        """


class LiveText(ABC):
    """What the live line of a job says; the terminal draws it."""

    delay: ClassVar[float] = 0.0
    """Seconds before it is drawn for the first time."""
    interval: ClassVar[float] = 0.1
    """Seconds between two drawings, at least."""

    @abstractmethod
    def add(self, *args: Any, **kwargs: Any) -> bool:
        """Add the next news; return whether the line may have changed."""

    @abstractmethod
    def parts(self) -> Iterable[tuple[str, str]]:
        """The parts of the line, each with its style; a part without text is left out."""


def short(text: object, most: int) -> str:
    """The text, cut to `most` characters with an ellipsis at the end if it is longer."""
    full = text if isinstance(text, str) else "" if text is None else str(text)
    return full if len(full) <= most else f"{full[: most - 1]}…"


def number(value: object) -> float | None:
    """A finite number, which JSON can hold; None for all else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def whole(value: object) -> int | None:
    """A whole number; None for all else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping, empty for all else.

    What is recorded may have been written by another version, or by hand.
    """
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    """A list, empty for all else."""
    return list(value) if isinstance(value, (list, tuple)) else []


def value_in(event: Event) -> object:
    """The value of an event; None if it can't be read."""
    try:
        return value_of(event)
    except StoreError:
        return None


def failure_in(event: Event) -> str:
    """The message of a failure, or its kind if it has no message."""
    try:
        error = error_of(event)
    except StoreError:
        return "a failure that can't be read"
    return error.message or error.kind


def manifest_of(run: RunRow, kind: str) -> Mapping[str, Any]:
    """The part of a run's manifest that belongs to its job."""
    return mapping(run.manifest.get(kind))


def many(count: int, noun: str) -> str:
    """`1 branch`, `2 branches`."""
    ending = "es" if noun.endswith(("ch", "s", "x")) else "s"
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{ending}"


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a small HTML table for notebooks, of escaped text; None is shown as an empty cell."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows
    )
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    return "" if value is None else escape(str(value))
