"""The SQL of the SQLite store: one statement per file, each opening with a line that says what it is for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent  # importlib.resources takes longer to import than all of the store


@cache
def sql(name: str) -> str:
    """The statement in `name.sql`, without its opening line."""
    return (_HERE / f"{name}.sql").read_text("utf-8").partition("\n")[2].strip()


@cache
def migrations() -> tuple[str, ...]:
    """The scripts that make the newest schema.

    The first makes version 1, the next version 2, and so on.
    """
    return tuple(
        script.read_text("utf-8") for script in sorted((_HERE / "migrations").glob("*.sql"))
    )
