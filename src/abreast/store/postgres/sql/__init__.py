"""The SQL of the PostgreSQL store: one statement per file; its first line says what it is for.

The files name the schema `abreast`; a store in another schema has its name put in its place.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

SCHEMA: Final = "abreast"
_FOLDER: Final = Path(__file__).parent
_QUALIFIED: Final = re.compile(rf"\b{SCHEMA}\.(?=[a-z])")


@cache
def sql(name: str, schema: str = SCHEMA) -> bytes:
    """The statement in `name.sql`, without its opening line, for the tables of a schema."""
    text = (_FOLDER / f"{name}.sql").read_text("utf-8").partition("\n")[2].strip()
    return in_schema(text, schema).encode()


@cache
def migrations(schema: str = SCHEMA) -> tuple[str, ...]:
    """The scripts that create the newest tables: the first makes version 1, and so on."""
    scripts = sorted((_FOLDER / "migrations").glob("*.sql"))
    return tuple(in_schema(script.read_text("utf-8"), schema) for script in scripts)


def in_schema(statement: str, schema: str) -> str:
    """A statement for the tables of another schema."""
    return _QUALIFIED.sub(lambda _: f"{quoted(schema)}.", statement)


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
