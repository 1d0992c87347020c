"""The SQL of the SQLite store: one statement per file, each opening with a line that says what it is for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def sql(name: str) -> str:
    """The statement in `name.sql`, without its opening line."""
    return files(__name__).joinpath(f"{name}.sql").read_text("utf-8").partition("\n")[2].strip()


@cache
def migrations() -> tuple[str, ...]:
    """The scripts that make the newest schema; the first makes version 1, the next version 2, and so on."""
    scripts = sorted(
        (entry for entry in files(__name__).joinpath("migrations").iterdir() if entry.name.endswith(".sql")),
        key=lambda entry: entry.name,
    )
    return tuple(script.read_text("utf-8") for script in scripts)
