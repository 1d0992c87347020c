"""Addresses of PostgreSQL stores: what they stand for, and their text without a password."""

import re
from collections.abc import Mapping
from typing import Final

from abreast.core.frozen import record
from abreast.store.postgres.sql import SCHEMA

SCHEMES: Final = ("postgresql", "postgres")
FORM: Final = "postgresql://USER@HOST:PORT/DATABASE"

# By these a server is noticed that no longer answers.
_DEFAULTS: Final = {
    "application_name": "abreast",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_SCHEMA_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
# The password ends at the last @ before the path: it may contain one that should be escaped.
_USER_PASSWORD: Final = re.compile(r"(?P<user>://[^/?#\s:@]*):[^/?#\s]*@")
_PASSWORD_PARAMETER: Final = re.compile(r"(?P<name>[?&](?:ssl)?password=)[^&#\s]*", re.IGNORECASE)


@record(frozen=True, slots=True)
class PostgresAddress:
    """A database and the schema in it; `url` is its address without the password."""

    url: str
    parameters: Mapping[str, str]
    """What libpq is given; the password may be in it, so it is never printed."""
    schema: str

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"


def without_password(text: str) -> str:
    """A text without the passwords of the addresses in it.

    >>> without_password("--store=postgresql://ann:secret@db/runs")
    '--store=postgresql://ann@db/runs'
    """
    if "://" not in text:
        return text
    return _PASSWORD_PARAMETER.sub(r"\g<name>***", _USER_PASSWORD.sub(r"\g<user>@", text))


def parse_address(url: str) -> PostgresAddress:
    """Parse an address; ValueError if it is none, without any part that may be a password.

    It is what libpq accepts, and `schema=NAME` for tables elsewhere than in the schema `abreast`.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    base, mark, query = url.partition("?")
    parts = [part for part in query.split("&") if part]
    schemas = [part.partition("=")[2] for part in parts if part.startswith("schema=")]
    rest = [part for part in parts if not part.startswith("schema=")]
    schema = schemas[-1] if schemas else SCHEMA
    if not _SCHEMA_NAME.fullmatch(schema):
        raise ValueError("schema= must be a plain name of letters, digits and underscores")
    try:
        found = conninfo_to_dict(base + (mark + "&".join(rest) if rest else ""))
    except ProgrammingError:
        # libpq quotes what it can't read, which may be the password.
        raise ValueError(
            f"it is not an address of PostgreSQL; one has the form {FORM}, with %40 for an @ in it"
        ) from None
    given = {name: str(value) for name, value in found.items() if value is not None}
    parameters = {**_DEFAULTS, **given, "client_encoding": "UTF8"}
    return PostgresAddress(without_password(url), parameters, schema)
