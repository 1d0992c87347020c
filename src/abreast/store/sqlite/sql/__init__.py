"""The SQL of the SQLite store: one statement per file; its first line says what it is for."""

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent  # importing importlib.resources takes longer than the whole store


@cache
def sql(name: str) -> str:
    """The statement in `name.sql`, without its opening line."""
    return (_FOLDER / f"{name}.sql").read_text("utf-8").partition("\n")[2].strip()


@cache
def migrations() -> tuple[str, ...]:
    """The scripts that create the newest schema: the first makes version 1, and so on."""
    return tuple(
        script.read_text("utf-8") for script in sorted((_FOLDER / "migrations").glob("*.sql"))
    )
