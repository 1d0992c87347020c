"""What only the store in PostgreSQL does: schemas, leases, long paths, roles and settings."""

import threading
from contextlib import closing
from hashlib import sha256

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from abreast.core.errors import (
    RunBusy,
    RunExists,
    StoreCorrupt,
    StoreDamaged,
    StoreError,
    StoreGone,
    StoreNewer,
    StoreReadOnly,
)
from abreast.store.check import check_store, copy_run
from abreast.store.port import each_outcome
from abreast.store.postgres.columns import beneath as beneath_of
from abreast.store.postgres.leases import LeaseTimes
from abreast.store.postgres.sql import migrations
from abreast.store.postgres.store import PostgresStore
from abreast.store.sqlite.store import SqliteStore
from tests.properties import tried
from tests.store.contract import ANN, BOB, begin, event, fill, settled


@pytest.fixture
def store(postgres_url):
    with closing(PostgresStore(postgres_url)) as store:
        yield store


@pytest.fixture
def db(postgres_url):
    """The database itself, with the store's schema first."""
    address, _, query = postgres_url.partition("?")
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(f"SET search_path = {query.removeprefix('schema=')}")
        yield db


def schema_of(url):
    return url.partition("?schema=")[2]


# --- the schema ---


def test_it_is_made_once_however_many_open_it_at_the_same_time(postgres_url):
    start, opened, troubles = threading.Barrier(6), [], []

    def open_it():
        start.wait()
        try:
            opened.append(PostgresStore(postgres_url))
        except Exception as error:
            troubles.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in opened:
        store.close()
    assert (troubles, len(opened)) == ([], 6)


def test_a_later_schema_is_not_touched(store, db, postgres_url):
    newest = len(migrations())
    assert db.execute("SELECT max(version) FROM migrations").fetchone() == (newest,)
    db.execute("INSERT INTO migrations (version) VALUES (99)")
    with pytest.raises(StoreNewer, match=f"version 99, made by a later abreast.*up to {newest}"):
        PostgresStore(postgres_url)


def test_a_schema_of_another_program_is_refused(db, postgres_url):
    db.execute(f"CREATE SCHEMA {schema_of(postgres_url)}")
    db.execute("CREATE TABLE invoices (id INTEGER)")
    with pytest.raises(StoreCorrupt, match=r"of another program.*\?schema=NAME"):
        PostgresStore(postgres_url)


def test_two_schemas_of_one_database_are_two_stores(store, postgres_url):
    begin(store)
    with closing(PostgresStore(f"{postgres_url}_b")) as other:
        assert other.runs() == []
        assert begin(other, "else").id == "else-1"
    assert [row.id for row in store.runs()] == ["job-1"]


def test_a_database_that_is_not_in_utf8_is_refused(db, postgres_url):
    name = schema_of(postgres_url)
    db.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0")
    try:
        with pytest.raises(StoreError, match=r"the encoding SQL_ASCII; a store needs .* UTF8"):
            PostgresStore(postgres_url.replace("/runs?", f"/{name}?"))
    finally:
        db.execute(f"DROP DATABASE {name}")


def test_a_schema_that_is_dropped_meanwhile_is_gone(store, db, postgres_url):
    begin(store)
    db.execute(f"DROP SCHEMA {schema_of(postgres_url)} CASCADE")
    with pytest.raises(StoreGone, match="was removed while it was in use"):
        store.runs()


def test_a_role_that_may_only_read_reads_and_is_refused_to_write(store, db, postgres_url):
    begin(store)
    role = schema_of(postgres_url)
    db.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'looks'")
    db.execute(f"GRANT USAGE ON SCHEMA {role} TO {role}")
    db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {role} TO {role}")
    host = postgres_url.rpartition("@")[2]
    with closing(PostgresStore(f"postgresql://{role}:looks@{host}")) as reader:
        assert [row.id for row in reader.runs()] == ["job-1"]
        assert reader.driven("job-1")
        with pytest.raises(StoreReadOnly, match="permission denied"):
            reader.ask("job-1", "cancel", {}, 1.0)
    db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_commit_waits_for_the_disk_where_the_default_is_not_to(store, db):
    with db.transaction():
        db.execute("SET LOCAL synchronous_commit = off")
        db.execute("SELECT wait_for_disk()")
        assert db.execute("SHOW synchronous_commit").fetchone() == ("on",)
    with db.transaction():
        db.execute("SET LOCAL synchronous_commit = remote_apply")
        db.execute("SELECT wait_for_disk()")
        assert db.execute("SHOW synchronous_commit").fetchone() == ("remote_apply",)
    for statement in ("commit", "end_run"):
        assert b"wait_for_disk()" in store._db.sql(statement)


def test_a_read_compiles_nothing_and_can_write_nothing(store):
    assert store._db.read(lambda db: db.execute("SHOW jit").fetchone()) == ("off",)
    with pytest.raises(StoreReadOnly):
        store._db.read(lambda db: db.execute("CREATE TABLE not_here (id INTEGER)"))
    assert store.runs() == []


# --- leases ---


def test_a_lease_is_renewed_until_the_run_is_let_go(postgres_url, db):
    with closing(PostgresStore(postgres_url, lease=LeaseTimes(30.0, 0.01))) as store:
        begin(store)
        seen = set()
        while len(seen) < 3:
            seen |= set(db.execute("SELECT until FROM leases").fetchall())
        store.let_go("job-1")
        assert db.execute("SELECT holder, until FROM leases").fetchall() == [(None, None)]


def test_a_lease_that_has_expired_may_be_taken(store, db, postgres_url):
    begin(store)
    db.execute("UPDATE leases SET until = now() - interval '1 second'")
    with closing(PostgresStore(postgres_url)) as other:
        assert not other.driven("job-1")
        assert other.take_over("job-1", BOB).epoch == 2
        with pytest.raises(RunBusy, match="process 22"):
            store.take_over("job-1", ANN)


def test_a_driver_on_another_machine_is_believed_until_its_lease_expires(store, db):
    begin(store)
    db.execute("UPDATE leases SET process = 'another-boot pid:[4026531836] 1 1'")
    assert store.driven("job-1")


# --- paths ---

# Text that can't be compressed: an index would hold thousands of equal characters.
NOISE = "".join(sha256(bytes([n])).hexdigest() for n in range(100))
LONG = st.tuples(
    st.sampled_from(["m", "m/a", "n"]),
    st.sampled_from([0, 995, 1200, 6000]),
    st.sampled_from(["", "/x", "/y", "0"]),
).map(lambda parts: parts[0] + NOISE[: parts[1]] + parts[2])


@given(st.lists(LONG, max_size=12), st.none() | LONG, st.integers(1, 4))
@tried(30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_paths_longer_than_an_index_holds_are_found_like_others(store, paths, prefix, page):
    run_id = begin(store).id
    store.commit(run_id, 1, [settled(n, path, str(n)) for n, path in enumerate(paths, 1)], {})
    newest = {path: n for n, path in enumerate(paths, 1)}
    wanted = sorted(
        n
        for path, n in newest.items()
        if not prefix or path == prefix or path.startswith(f"{prefix}/")
    )
    found = each_outcome(store, run_id, prefix=prefix or "", page=page)
    assert [one.seq for one in found] == wanted
    recorded = store.recorded(run_id, set(paths))
    assert {path: one.seq for path, one in recorded.items()} == newest
    assert sum(store.count_states(run_id, 100).values()) == len(newest)


# --- what is stored ---


def test_its_rows_are_those_of_a_store_in_sqlite(store, db, tmp_path):
    begin(store)
    store.commit("job-1", 1, [event(1), settled(2, "m/é", "x" * 70_000, lane="l")], {"usd": 1.0})
    store.ask("job-1", "cancel", {}, 1.0)
    store.keep_reply("k", "m", "body", 1.0)
    store.backup(str(tmp_path / "copy.db"))
    with closing(SqliteStore(tmp_path / "copy.db")) as copy:  # which checks every row
        assert copy.get("job-1") == store.get("job-1")
        assert copy.events("job-1") == store.events("job-1")
        assert copy.asked("job-1") == store.asked("job-1")
        assert (copy.find_reply("k"), copy.replies()) == ("body", store.replies())


def test_a_damaged_row_is_not_believed(store, db):
    begin(store)
    store.ask("job-1", "cancel", {}, 1.0)
    store.keep_reply("k", "m", "body", 1.0)
    db.execute("UPDATE requests SET kind = 'approve'")
    db.execute("UPDATE replies SET body = 'else'")
    assert (store.asked("job-1"), store.find_reply("k")) == ([], None)
    db.execute("UPDATE runs SET spent = '{\"usd\":9}'")
    with pytest.raises(StoreDamaged, match="job-1"):
        store.get("job-1")


def test_a_damaged_run_is_left_out_of_the_list_only_if_that_is_asked_for(store, db):
    begin(store)
    begin(store)
    db.execute("UPDATE runs SET spent = '{\"usd\":9}' WHERE id = 'job-1'")
    with pytest.raises(StoreDamaged, match="job-1"):
        store.runs()
    damage = []
    assert [row.id for row in store.runs(on_damage=damage.append)] == ["job-2"]
    assert ["job-1" in str(error) for error in damage] == [True]


@pytest.mark.parametrize("column", ['data = \'{"state": "failed"}\'', "body = 'x'", "wall = 7"])
def test_a_changed_event_is_named_by_every_read_that_returns_it(store, db, column):
    fill(store, 1)
    store.end("job-1", 1, "done", "", 5.0)
    db.execute(f"UPDATE events SET {column} WHERE path = 'm/7'")
    reads = [
        lambda: store.events("job-1"),
        lambda: store.outcomes("job-1"),
        lambda: store.outcomes("job-1", prefix="m/7"),
        lambda: store.recorded("job-1", ["m/7"]),
    ]
    for read in reads:
        with pytest.raises(StoreDamaged, match="row 7: changed"):
            read()
    assert set(store.recorded("job-1", ["m/8"])) == {"m/8"}


def test_an_outcome_that_is_lost_is_no_shorter_answer(store, db):
    fill(store, 1)
    db.execute("DELETE FROM events WHERE path = 'm/7'")
    store.end("job-1", 1, "done", "", 5.0)
    with pytest.raises(StoreDamaged, match="49 outcomes are there, and 50 were recorded"):
        store.outcomes("job-1")


def test_a_run_is_copied_between_stores_byte_for_byte(store, postgres_url, tmp_path):
    begin(store)
    events = [event(1), settled(2, "m/é\0", "x" * 70_000, lane="l"), event(3, data={"s": "\ud800"})]
    store.commit("job-1", 1, events, {"usd": 1.0})
    with pytest.raises(RunBusy, match="being driven"):
        copy_run(store, "job-1", store)
    store.end("job-1", 1, "done", "", 300.0)
    with (
        closing(SqliteStore(tmp_path / "runs.db")) as file,
        closing(PostgresStore(f"{postgres_url}_b")) as other,
    ):
        assert copy_run(store, "job-1", file).verdict == "ok"
        assert copy_run(file, "job-1", other).verdict == "ok"
        assert other.stored_runs() == file.stored_runs() == store.stored_runs()
        rows = list(store.stored_events("job-1"))
        assert list(other.stored_events("job-1")) == list(file.stored_events("job-1")) == rows
        assert other.events("job-1") == events
        assert other.count_states("job-1", 9) == {"": 1}
        assert [row.seq for row in other.stored_events("job-1", last=2)] == [1, 2]
        with pytest.raises(RunExists):
            copy_run(file, "job-1", other)
        assert other.take_over("job-1", BOB).epoch == 2
        other.commit("job-1", 2, [event(4)], {})
        assert check_store(other).is_whole


def test_a_check_finds_what_was_changed(store, db):
    begin(store)
    store.commit("job-1", 1, [event(1), settled(2, "m/a"), event(3)], {})
    store.ask("job-1", "cancel", {}, 1.0)
    assert check_store(store).is_whole
    db.execute("UPDATE events SET body = 'else' WHERE kind = 'item-settled'")
    db.execute("UPDATE requests SET kind = 'approve'")
    found = check_store(store)
    assert [str(fault) for fault in found.runs[0].faults] == ["row 2: changed"]
    assert found.faults == ("request 1 was changed",)


def test_a_backup_is_not_written_over_a_store_in_use(store, tmp_path):
    (tmp_path / "copy.db-wal").touch()
    with pytest.raises(StoreError, match="in use"):
        store.backup(str(tmp_path / "copy.db"))


def test_a_name_with_a_character_that_postgresql_has_not_is_refused(store):
    with pytest.raises(StoreError, match="NUL"):
        begin(store, "a\0b")
    assert store.runs() == []


def test_tags_are_found_whole(store):
    for tags in (['a"x'], ['a,"x'], ["x"], ["y", "x"], ["\ud800"]):
        begin(store, tags=tags)
    assert [row.id for row in store.runs(tag="x")] == ["job-4", "job-3"]
    assert [row.id for row in store.runs(tag="\ud800")] == ["job-5"]


def test_what_happened_to_one_item_is_found_without_a_scan_of_all_events(store, db):
    begin(store)
    kinds = ("attempt-failed", "limit-waited", "call-started", "item-started")
    events = [
        event(seq, kind=kinds[seq % 4], path=f"job/map/{seq // 8:04}" + "/call" * (seq % 3 == 0))
        for seq in range(1, 4001)
    ]
    store.commit("job-1", 1, events, {})
    for wanted in ({"attempt-failed", "limit-waited"}, {"call-started"}):
        for prefix in ("job/map/0007", "job/map/0007/", "job/map"):
            beneath = [
                one.seq
                for one in events
                if one.kind in wanted
                and (one.path == prefix or one.path.startswith(prefix.removesuffix("/") + "/"))
                and (one.path != prefix.removesuffix("/") or not prefix.endswith("/"))
            ]
            found = store.events("job-1", kinds=wanted, prefix=prefix, limit=50, after=57)
            assert [one.seq for one in found] == [seq for seq in beneath if seq > 57][:50]
    db.execute("ANALYZE events")
    statement = store._db.sql("list_details")
    given = {"run": 1, "after": 0, "kinds": ["call-started"], "limit": 9}
    plan = db.execute(b"EXPLAIN " + statement, {**given, **beneath_of("job/map/0007")}).fetchall()
    assert "events_details" in str(plan)
    assert "Seq Scan on events" not in str(plan)
