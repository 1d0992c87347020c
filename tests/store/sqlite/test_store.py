"""The store on disk: its file, its schema, what it keeps apart and what it gives back."""

import sqlite3
import stat
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from abreast.core.errors import RunBusy, StoreCorrupt, StoreError, StoreNewer
from abreast.store.sqlite import database
from abreast.store.sqlite.sql import migrations, sql
from abreast.store.sqlite.store import SqliteStore
from tests.store.children import child
from tests.store.contract import ANN, BOB, begin, event, fill, settled, sqlite_error

# --- the file ---


def test_the_file_and_its_folders_are_made_for_the_owner_alone(tmp_path):
    path = tmp_path / "a" / "b" / "runs.db"
    with closing(SqliteStore(path)) as store:
        begin(store)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {
            "runs.db": 0o600,
            "runs.db-wal": 0o600,
            "runs.db-shm": 0o600,
            "runs.db-locks": 0o700,
        }
        assert store.url == f"sqlite:///{path}"


def test_a_commit_is_on_disk_before_it_returns(store):
    writer = store._db._writer
    with store._db.reading() as reader:
        for connection, patience in (
            (writer, 100),
            (reader, 30_000),
        ):  # the writer waits in slices, to hear signals
            assert connection.execute("PRAGMA synchronous").fetchone() == (
                1,
            )  # NORMAL: `sync` flushes the log
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert connection.execute("PRAGMA busy_timeout").fetchone() == (patience,)
        assert reader.execute("PRAGMA query_only").fetchone() == (1,)


def test_a_closed_store_says_so(store, path):
    store.close()
    for use in (store.runs, store.vacuum, lambda: begin(store)):
        with pytest.raises(StoreError, match=f"{path} was closed"):
            use()


@pytest.mark.parametrize("again", [False, True], ids=["removed", "replaced"])
def test_a_store_whose_file_is_gone_is_neither_written_nor_read(store, path, again):
    row = begin(store)
    path.unlink()
    with ExitStack() as others:
        if again:
            others.enter_context(closing(SqliteStore(path)))
        for use in (
            store.runs,
            lambda: store.commit(row.id, row.epoch, [event(1)], {}),
            lambda: store.asked(row.id),
        ):
            with pytest.raises(
                StoreError, match=f"{path} was removed or replaced while it was in use"
            ):
                use()


def test_a_reader_that_outlives_the_closing_is_closed_after_its_use(store):
    with store._db.reading() as connection:
        store.close()
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")


def test_only_a_few_idle_readers_are_kept(store):
    with ExitStack() as readers:
        for _ in range(9):
            readers.enter_context(store._db.reading())
    assert len(store._db._idle) == 4


def test_two_names_for_one_file_are_one_store(store, path, tmp_path):
    (tmp_path / "link.db").symlink_to(path)
    begin(store)
    with closing(SqliteStore(tmp_path / "link.db")) as linked, pytest.raises(RunBusy):
        linked.take_over("job-1", BOB)


# --- the schema ---


def test_every_statement_says_what_it_is_for():
    folder = Path(database.__file__).parent / "sql"
    files = [*folder.glob("*.sql"), *(folder / "migrations").glob("*.sql")]
    assert len(files) > 20
    for file in files:
        assert file.read_text().startswith("-- "), file
    assert sql("find_number") == "SELECT number FROM runs WHERE id = ?"
    numbers = sorted(int(file.name[:4]) for file in (folder / "migrations").glob("*.sql"))
    assert numbers == list(range(1, len(migrations()) + 1))


def test_an_older_schema_is_brought_up_to_date_and_keeps_what_it_holds(store, path, monkeypatch):
    begin(store)
    store.close()
    script = (
        "-- Two more things.\nCREATE TABLE more (x TEXT DEFAULT ';');\n"
        "INSERT INTO more VALUES ('a;\nb');\n"
    )
    monkeypatch.setattr(database, "migrations", lambda: (*migrations(), script, "-- Nothing."))
    with closing(SqliteStore(path)) as newer:
        assert newer.get("job-1").id == "job-1"
        with newer._db.reading() as db:
            assert db.execute("PRAGMA user_version").fetchone() == (len(migrations()) + 2,)
            assert db.execute("SELECT x FROM more").fetchone() == ("a;\nb",)


def test_a_migration_that_fails_leaves_the_store_as_it_was(store, path, monkeypatch):
    begin(store)
    store.close()
    script = "-- Half of it.\nCREATE TABLE more (x);\nCREATE TABLE runs (again);\n"
    monkeypatch.setattr(database, "migrations", lambda: (*migrations(), script))
    with pytest.raises(StoreError, match=r"runs\.db can't be used: table runs already exists"):
        SqliteStore(path)
    monkeypatch.undo()
    with closing(SqliteStore(path)) as old, old._db.reading() as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'more'").fetchone() == (
            0,
        )


def test_a_newer_schema_is_refused_with_both_versions(store, path):
    store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(
        StoreNewer, match=rf"{path} has schema version 99.* knows up to {len(migrations())}$"
    ):
        SqliteStore(path)


def test_another_programs_database_is_refused_and_left_alone(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt, match=f"{path} is a database of another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_another_process_may_have_made_the_schema_first(path, monkeypatch):
    real = database.Database._use_wal

    def beaten(self, db):
        monkeypatch.undo()
        SqliteStore(path).close()
        real(self, db)

    monkeypatch.setattr(database.Database, "_use_wal", beaten)
    with closing(SqliteStore(path)) as store:
        assert begin(store).id == "job-1"


def test_eight_processes_may_make_the_same_store_at_once(path):
    script = "sys.stdin.read(1); try_it(lambda: begin(SqliteStore(sys.argv[1])).id)"
    with ExitStack() as stack:
        children = [stack.enter_context(child(script, path)) for _ in range(8)]
        for each in children:
            each.stdin.write("x")
            each.stdin.flush()
        said = sorted(each.communicate(timeout=100)[0].strip() for each in children)
    assert said == [f"fine job-{n}" for n in range(1, 9)]


class Answers:
    """A connection that gives these answers, in turn."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def execute(self, _statement):
        if isinstance(self.answers[0], Exception):
            raise self.answers.pop(0)
        return self

    def fetchone(self):
        return (self.answers.pop(0),)


def test_a_file_system_without_a_write_ahead_log_is_refused(store):
    with pytest.raises(StoreError, match="can't keep a write-ahead log"):
        store._db._use_wal(Answers("delete"))


def test_while_another_process_turns_on_the_write_ahead_log_we_wait_our_turn(store, monkeypatch):
    paused: list = []
    monkeypatch.setattr(database, "pause", paused.append)
    busy = sqlite_error(sqlite3.SQLITE_BUSY)
    answers = Answers(busy, busy, "wal")
    store._db._use_wal(answers)
    assert (len(paused), answers.answers) == (2, [])
    with pytest.raises(sqlite3.OperationalError):
        store._db._use_wal(Answers(sqlite_error(sqlite3.SQLITE_CORRUPT)))


# --- backup, room ---


def test_a_backup_over_a_store_in_use_is_refused(store, path, tmp_path):
    begin(store)
    with pytest.raises(StoreError, match="is a store in use"):
        store.backup(str(path))
    with closing(SqliteStore(tmp_path / "other.db")) as other:
        begin(other)
        with pytest.raises(StoreError, match="is a store in use"):
            store.backup(str(tmp_path / "other.db"))
        assert other.get("job-1").driver == ANN


def test_a_backup_is_for_the_owner_alone(store, tmp_path):
    store.backup(str(tmp_path / "copy.db"))
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith("copy")) == [
        "copy.db"
    ]


def test_vacuum_gives_the_room_of_removed_runs_back(store, path):
    fill(store)
    store.end("job-1", 1, "done", "", 1.0)
    store.vacuum()
    full = path.stat().st_size
    store.remove("job-1")
    store.vacuum()
    assert path.stat().st_size < full / 4
    assert Path(f"{path}-wal").stat().st_size == 0


def table(store, what):
    with store._db.reading() as db:
        return db.execute(what).fetchall()


def test_a_big_body_stands_apart_from_the_journal(store):
    begin(store)
    store.commit("job-1", 1, [settled(1, "m/a", "x" * 65_536), settled(2, "m/b", "x" * 65_537)], {})
    assert table(store, "SELECT id & 0xffffffffff, length(body) FROM blobs") == [(2, 65_537)]


def test_of_a_removed_run_no_row_is_left_in_any_table(store):
    begin(store)
    store.commit("job-1", 1, [settled(1, "m/a", "x" * 70_000)], {})
    store.ask("job-1", "cancel", {}, 1.0)
    store.let_go("job-1")
    store.remove("job-1")
    assert [
        table(store, f"SELECT * FROM {name}") for name in ("runs", "events", "blobs", "requests")
    ] == [[], [], [], []]


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("find_outcome", "events_settled"),
        ("list_outcomes", "INTEGER PRIMARY KEY"),
        ("list_outcomes_beneath", "events_settled"),
        ("list_inputs", "events_read"),
        ("list_maps", "events_maps"),
        ("list_events", "INTEGER PRIMARY KEY"),
        ("list_requests", "requests_open"),
        ("newest_run", "runs_by_name"),
        ("remove_events", "INTEGER PRIMARY KEY"),
        ("set_run_state", "INTEGER PRIMARY KEY"),
        ("find_run_state", "INTEGER PRIMARY KEY"),
        ("list_stored", "INTEGER PRIMARY KEY"),
        ("index_settled", "events_settled"),
        ("find_place", "INTEGER PRIMARY KEY"),
    ],
)
def test_every_look_goes_by_an_index(store, statement, index):
    text = sql(statement)
    names = dict.fromkeys(
        [
            "run",
            "after",
            "end",
            "start",
            "prefix",
            "low",
            "high",
            "floor",
            "limit",
            "kinds",
            "base",
        ],
        1,
    )
    with store._db.reading() as db:
        plan = db.execute(
            f"EXPLAIN QUERY PLAN {text}", names if ":" in text else (1,) * text.count("?")
        ).fetchall()
    steps = [step[-1] for step in plan]
    assert any(index in step for step in steps), steps
    assert not any(step.startswith(("SCAN events", "SCAN runs")) for step in steps), steps


def test_many_outcomes_beneath_a_prefix_are_read_along_the_journal(store):
    fill(store, batches=2)
    few = [found.seq for found in store.outcomes("job-1", prefix="m", limit=6)]
    many = [found.seq for found in store.outcomes("job-1", prefix="m", limit=2)]
    assert (few, many) == ([1, 2, 3, 4, 5, 6], [1, 2])


def test_all_but_the_events_of_a_run_is_on_disk_when_the_call_returns_and_those_after_a_sync(
    store, monkeypatch
):
    flushed = []
    link = "/proc/self/fd/{}"
    monkeypatch.setattr(
        "abreast.store.sqlite.database._fsync",
        lambda fd: flushed.append(str(Path(link.format(fd)).readlink())),
    )
    row = begin(store)
    assert flushed == [f"{store.path}-wal"]
    store.commit(row.id, row.epoch, [event(1)], {})
    assert len(flushed) == 1
    store.sync()
    assert len(flushed) == 2
    store.end(row.id, row.epoch, "done", "", 1.0)
    assert len(flushed) == 3
