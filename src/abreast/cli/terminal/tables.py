"""Tables and facts for people: plain columns that a shell can cut, in bold only where a terminal shows them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from abreast.cli.errors import one_line
from abreast.cli.terminal.outcome_text import json_line
from abreast.cli.terminal.visible import visible


def say(text: str, *, bold: int = 0) -> None:
    """One line of output; on a terminal its control characters are shown, and its first `bold` ones are bold."""
    text = text.encode("utf-8", "replace").decode()
    if sys.stdout.isatty():
        title = click.style(visible(text[:bold]), bold=True) if bold else ""
        text = title + visible(text[bold:])
    sys.stdout.write(f"{text}\n")


def say_json(row: Mapping[str, Any]) -> None:
    """One object as a line of output."""
    say(json_line(row))


def say_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows in columns as wide as they need to be; the last one may be as long as it likes."""
    texts = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    title = _line(head, widths)
    say(title, bold=len(title))
    for row in texts:
        say(_line(row, widths))


def say_facts(facts: Mapping[str, object]) -> None:
    """Names and values, one below the other; a name without a value is left out."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        if value not in (None, "", [], ()):
            say(f"{name.ljust(width)}  {one_line(str(value))}", bold=width)


def iso_time(when: float | None) -> str | None:
    """A time of day for programs: ISO 8601, in UTC."""
    return (
        None
        if when is None
        else datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
    )


def local_time(when: float | None) -> str:
    """A time of day for people, where they are."""
    return (
        ""
        if when is None
        else datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    )


def duration_text(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
