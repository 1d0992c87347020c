"""Connections may be lost at any moment: nothing is lost with them, and nothing is done twice."""

from contextlib import closing
from uuid import uuid4

import psycopg
import pytest

from abreast.core.errors import StoreError, StoreUnreachable
from abreast.store.postgres.store import PostgresStore
from tests.store.contract import ANN, BOB, begin, event, settled
from tests.store.postgres.proxy import open_line

CUTS = ["before", "after"]


@pytest.fixture
def line(postgres_url):
    with open_line(postgres_url) as line:
        yield line


@pytest.fixture
def store(line):
    with closing(PostgresStore(line.url)) as store:
        yield store


@pytest.mark.parametrize("when", CUTS)
def test_a_commit_whose_answer_is_lost_is_made_once(store, line, when):
    begin(store)
    store.commit("job-1", 1, [event(1)], {"usd": 1.0})
    line.cut(when, b"last_commit")
    store.commit("job-1", 1, [settled(2, "m/a", "x" * 70_000), event(3)], {"usd": 2.0})
    store.commit("job-1", 1, [event(4)], {"usd": 3.0})
    assert line.cuts == 1
    assert [found.seq for found in store.events("job-1")] == [1, 2, 3, 4]
    assert (store.get("job-1").last_seq, store.get("job-1").spent) == (4, {"usd": 3.0})


@pytest.mark.parametrize("when", CUTS)
def test_a_run_is_begun_once(store, line, when):
    line.cut(when, b"COMMIT")
    assert begin(store).id == "job-1"
    assert line.cuts == 1
    assert [row.id for row in store.runs()] == ["job-1"]
    assert "driving 1" in repr(store)


@pytest.mark.parametrize("when", CUTS)
def test_a_run_is_taken_over_once(store, line, when):
    begin(store)
    store.let_go("job-1")
    line.cut(when, b"COMMIT")
    assert store.take_over("job-1", BOB).epoch == 2
    assert line.cuts == 1
    assert (store.get("job-1").epoch, store.get("job-1").driver) == (2, BOB)


@pytest.mark.parametrize("when", CUTS)
def test_a_request_is_stored_once_and_answered(store, line, when):
    begin(store)
    line.cut(when, b"COMMIT")
    request = store.ask("job-1", "cancel", {}, 1.0)
    assert [found.id for found in store.asked("job-1")] == [request]
    line.cut(when, b"COMMIT")
    store.answer(request, 2.0)
    assert store.asked("job-1") == []
    assert line.cuts == 2


@pytest.mark.parametrize("when", CUTS)
def test_a_run_is_ended_and_removed_once(store, line, when):
    begin(store)
    line.cut(when, b"'done'"[1:-1])
    store.end("job-1", 1, "done", "", 300.0)
    assert store.get("job-1").state == "done"
    line.cut(when, b"COMMIT")
    store.remove("job-1")
    assert line.cuts == 2
    assert store.runs() == []


def test_a_lost_read_is_read_again(store, line):
    begin(store)
    line.cut("after", b"driver, reason")
    assert store.get("job-1").driver == ANN
    assert line.cuts == 1


def test_connections_that_the_server_closes_while_idle_are_replaced(postgres_url):
    ours = f"idle-{uuid4().hex}"
    with closing(PostgresStore(f"{postgres_url}&application_name={ours}")) as store:
        begin(store)
        with psycopg.connect(postgres_url.partition("?")[0], autocommit=True) as db:
            ended = db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = %s",
                (ours,),
            ).fetchall()
        assert ended
        store.commit("job-1", 1, [event(1)], {})
        assert [found.seq for found in store.events("job-1")] == [1]


def test_a_server_that_stays_away_is_an_error_in_the_end_that_says_where(postgres_url):
    with open_line(postgres_url) as line:
        store = PostgresStore(line.url, busy_timeout=0.2, reconnect_timeout=0.2)
        begin(store)
    for work in (lambda: store.commit("job-1", 1, [event(1)], {}), lambda: store.get("job-1")):
        with pytest.raises(StoreError, match=r"postgresql://abreast@127.*can't be reached"):
            work()
    store.let_go("job-1")  # its lease expires by itself
    store.close()
    with pytest.raises(StoreError, match="was closed"):
        store.runs()


def test_a_server_that_stops_answering_is_given_up_in_the_end(line):
    quick = f"{line.url}&connect_timeout=2"
    with closing(
        PostgresStore(quick, busy_timeout=0, reconnect_timeout=0, answer_timeout=2)
    ) as store:
        begin(store)
        line.is_mute = True
        for work in (store.runs, lambda: store.commit("job-1", 1, [event(1)], {})):
            with pytest.raises(StoreError, match=r"can't be reached.*(4 seconds|given up after)"):
                work()
        line.is_mute = False
        store.commit("job-1", 1, [event(1)], {})
        assert [found.seq for found in store.events("job-1")] == [1]


def test_a_server_that_never_answered_is_given_up_and_the_sentence_says_when(line):
    line.is_mute = True
    with pytest.raises(StoreUnreachable, match="given up after 2 seconds"):
        PostgresStore(f"{line.url}&connect_timeout=2", busy_timeout=0)


def test_a_statement_that_takes_long_is_waited_for(postgres_url):
    with closing(PostgresStore(postgres_url, answer_timeout=0.2)) as store:
        found = store._db.read(lambda db: db.execute("SELECT pg_sleep(1.5), 7").fetchall())
        assert found[0][1] == 7
