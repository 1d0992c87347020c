"""Addresses are read as libpq reads them, and no password is ever in a text to show."""

import errno

import pytest

from abreast.assembly.names import find_store
from abreast.core.errors import StoreError
from abreast.store.postgres.address import parse_address, without_password
from abreast.store.postgres.server_errors import as_store_error


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://ann:secret@db:5432/runs", "postgresql://ann@db:5432/runs"),
        ("--store=postgres://ann:s%40x@db/runs", "--store=postgres://ann@db/runs"),
        ("postgresql://ann:se@cr:et@db/runs", "postgresql://ann@db/runs"),
        ("postgresql://:secret@db", "postgresql://@db"),
        (
            "postgresql:///runs?password=secret&host=/run",
            "postgresql:///runs?password=***&host=/run",
        ),
        ("postgresql://db/runs?sslpassword=s", "postgresql://db/runs?sslpassword=***"),
        ("http://127.0.0.1:8080/a@b", "http://127.0.0.1:8080/a@b"),
        ("postgresql://ann@db/runs", "postgresql://ann@db/runs"),
        ("runs.db", "runs.db"),
    ],
)
def test_a_password_is_left_out_wherever_it_is(given, shown):
    assert without_password(given) == shown


def test_an_address_says_where_the_tables_are():
    address = parse_address("postgresql://ann:x@db/runs?schema=mine&sslmode=require")
    assert (address.schema, address.parameters["sslmode"]) == ("mine", "require")
    assert (address.parameters["user"], address.parameters["password"]) == ("ann", "x")
    assert parse_address("postgresql:///runs").schema == "abreast"
    assert "x" not in repr(parse_address("postgresql://ann:x@db/runs")).replace("postgres", "")
    given = parse_address("postgresql://db/runs?connect_timeout=3&schema=a").parameters
    assert given["connect_timeout"] == "3"


@pytest.mark.parametrize(
    "wrong",
    [
        "postgresql://ann:secret%zz@db/runs",
        "postgresql://ann:secret@db:port/runs?what=secret",
        "postgresql://ann:secret@[::1/runs",
        "postgresql://ann:secret@db/runs?schema=a;b",
        "mysql://ann:secret@db/runs",
    ],
)
def test_what_is_no_address_is_refused_without_its_password(wrong):
    with pytest.raises(ValueError, match=r"postgresql://USER@HOST|schema=") as caught:
        find_store(wrong)
    assert "secret" not in str(caught.value)


def test_without_psycopg_the_command_that_installs_it_is_said(monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.startswith("abreast.store.postgres.")]:
        if not name.endswith((".address", ".sql")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ValueError, match=r"psycopg, which is not installed: .*postgres"):
        find_store("postgresql://db/runs")


def test_without_a_free_descriptor_a_statement_that_is_not_read_yet_is_an_error_of_the_store():
    full = OSError(errno.EMFILE, "Too many open files", "list_requests.sql")
    with pytest.raises(StoreError, match="can't be used: Too many open files"):
        with as_store_error("postgresql://here/runs"):
            raise full
