"""The list of runs over HTTP, while rows of one run are damaged in a real store."""

import json
import sqlite3
from contextlib import closing, contextmanager
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener

import psycopg
import pytest

from abreast.core.errors import StoreDamaged
from abreast.store.postgres.store import PostgresStore
from abreast.store.sqlite.store import SqliteStore
from abreast.web.damaged_runs import DamagedRuns
from tests.store.rows import begin, settled
from tests.web.conftest import serving

ROW = "UPDATE runs SET name = 'other' WHERE id = 'hurt-1'"
EVENT = (
    "UPDATE events SET path = 'elsewhere' WHERE run = (SELECT number FROM runs WHERE id = 'hurt-1')"
)


def fill(store):
    for name in ("before", "hurt", "after"):
        run = begin(store, name, kind="map")
        events = [settled(n, f"{name}/m/{n}", data={"state": "done"}) for n in (1, 2)]
        store.commit(run.id, 1, events, {})
        store.end(run.id, 1, "done", "", 900.0)


def alter_file(path, statement):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def alter_database(url, statement):
    address, _, schema = url.partition("?schema=")
    with psycopg.connect(address, options=f"-c search_path={schema}") as db:
        db.execute(statement)


@pytest.fixture(params=["sqlite", "postgres"])
def damaged(request, tmp_path):
    """`with damaged(statement) as ask:` serves a store of three runs after that statement."""
    if request.param == "sqlite":
        place, opened, alter = tmp_path / "runs.db", SqliteStore, alter_file
    else:
        place = request.getfixturevalue("postgres_url")
        opened, alter = PostgresStore, alter_database

    @contextmanager
    def serve(statement):
        with closing(opened(place)) as store:
            fill(store)
        alter(place, statement)
        with closing(opened(place)) as store, serving(store) as page:
            browser = build_opener(HTTPCookieProcessor())
            browser.open(page.address(), timeout=60).close()

            def ask(path):
                address = f"http://127.0.0.1:{page.port}{page.at(path)}"
                return browser.open(address, timeout=60)

            yield ask

    return serve


@pytest.mark.parametrize("statement", [ROW, EVENT], ids=["row", "event"])
def test_one_damaged_run_is_shown_as_damaged_and_the_others_as_always(damaged, statement):
    with damaged(statement) as ask:
        said = json.load(ask("runs.json"))
        lines = {line["id"]: line for line in said["runs"]}
        assert set(lines) == {"before-1", "hurt-1", "after-1"}
        assert said["count"] == 3
        for name in ("before-1", "after-1"):
            assert (lines[name]["state"], lines[name]["done"], lines[name]["counted"]) == (
                "done",
                2,
                True,
            )
        hurt = lines["hurt-1"]
        assert (hurt["state"], hurt["counted"]) == ("damaged", True)
        assert hurt["reason"].startswith("run hurt-1 in ")
        assert " is damaged: " in hurt["reason"]
        assert hurt.keys() == lines["after-1"].keys()
        again = json.load(ask("runs.json?state=damaged"))
        assert [line["id"] for line in again["runs"]] == ["hurt-1"]
        assert "damaged" in again["states"]
        assert "hurt-1" not in [
            line["id"] for line in json.load(ask("runs.json?state=done&q=-1"))["runs"]
        ]
        with ask("live") as stream:
            assert any(line == b"event: news\n" for line in stream)


@pytest.mark.parametrize("statement", [ROW, EVENT], ids=["row", "event"])
def test_the_page_of_a_damaged_run_says_so_in_a_sentence(damaged, statement):
    with damaged(statement) as ask:
        with pytest.raises(HTTPError) as refused:
            ask("run/hurt-1.json")
        assert refused.value.code == 500
        assert " is damaged: " in json.load(refused.value)["error"]
        assert json.load(ask("run/after-1.json"))["state"] == "done"


def test_damage_of_a_run_that_is_not_counted_is_an_error():
    class Tallies:
        def update(self, _rows):
            raise StoreDamaged("some other run")

    with pytest.raises(StoreDamaged):
        DamagedRuns().count(Tallies(), [])
