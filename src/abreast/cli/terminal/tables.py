"""Prints lines, JSON, tables and facts on stdout; headings are bold on a terminal."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from abreast.cli.errors import one_line
from abreast.cli.terminal.outcome_text import json_line
from abreast.cli.terminal.visible import visible


def say(text: str, *, bold: int = 0) -> None:
    """Print one line.

    On a terminal, control characters are escaped, and the first `bold` characters are bold.
    """
    text = text.encode("utf-8", "replace").decode()
    if sys.stdout.isatty():
        text = (click.style(visible(text[:bold]), bold=True) if bold else "") + visible(text[bold:])
    sys.stdout.write(f"{text}\n")


def say_json(row: Mapping[str, Any]) -> None:
    """Print one object as a line of JSON."""
    say(json_line(row))


def say_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns, each as wide as its longest cell."""
    texts = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    title = _line(head, widths)
    say(title, bold=len(title))
    for row in texts:
        say(_line(row, widths))


def say_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one pair per line; a name without a value is left out."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        if value not in (None, "", [], ()):
            say(f"{name.ljust(width)}  {one_line(str(value))}", bold=width)


def iso_time(when: float | None) -> str | None:
    """A time for programs: ISO 8601, in UTC."""
    return (
        None
        if when is None
        else datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds")
    )


def local_time(when: float | None) -> str:
    """A time for people: in the local time zone."""
    return (
        ""
        if when is None
        else datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    )


def duration_text(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
