"""Notes of a killed driver of an earlier version are committed by the next process."""

import json
import signal
import sqlite3
import tempfile
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import pytest

from abreast.core.errors import DriverReplaced, RunBusy, StoreLocked
from abreast.store.sqlite import notes
from abreast.store.sqlite.store import SqliteStore
from tests.store.children import child, said_by
from tests.store.contract import ANN, BOB, begin, forget_checksums, settled

NOTES_UNTIL_KILLED = """
store = SqliteStore(sys.argv[1])
begin(store)
store.commit("job-1", 1, [settled(1, "m/1", data={})], {"usd": 1.0})
for seq in range(2, 6):
    line = [1, {"usd": float(seq)}, [settled(seq, f"m/{seq}", data={"n": seq})]]
    os.write(store._locks._held[1], json.dumps(line).encode() + b"\\n")
if len(sys.argv) > 2:
    seqs = range(2, int(sys.argv[2]) + 1)
    store.commit("job-1", 1, [settled(seq, f"m/{seq}", data={"n": seq}) for seq in seqs], {})
say("noted")
sys.stdin.read()
"""


def noted(seq, **more):
    return settled(seq, f"m/{seq}", **{"data": {}, **more})


def seqs(store, run_id="job-1"):
    return [event.seq for event in store.events(run_id)]


def lock_file(path, number=1):
    return Path(f"{path}-locks", f"{number}.lock")


def killed(script, path, *arguments):
    with child(script, path, *arguments) as driver:
        assert driver.stdout.readline() == "noted\n"
        driver.kill()
        driver.wait()


@pytest.mark.parametrize("committed", [(), (3,), (5,)])
def test_what_a_killed_driver_had_jotted_down_is_there_for_whoever_opens_the_store(path, committed):
    killed(NOTES_UNTIL_KILLED, path, *committed)
    with closing(SqliteStore(path)) as store:
        assert seqs(store) == [1, 2, 3, 4, 5]
        assert store.events("job-1")[4] == settled(5, "m/5", data={"n": 5})
        row = store.get("job-1")
        assert (row.epoch, row.state, row.last_seq) == (1, "running", 5)
        assert row.spent == ({} if committed == (5,) else {"usd": 5.0})
        assert not lock_file(path).exists()  # and only once
    with closing(SqliteStore(path)) as store:
        assert store.take_over("job-1", BOB).last_seq == 5


def test_it_is_there_for_a_reader_who_had_the_store_open_before_the_kill(path, store):
    killed(NOTES_UNTIL_KILLED, path)
    assert seqs(store) == [1]
    assert not store.driven("job-1")
    assert seqs(store) == [1, 2, 3, 4, 5]


def test_and_for_who_takes_the_run_over(path, store):
    killed(NOTES_UNTIL_KILLED, path)
    row = store.take_over("job-1", BOB)
    assert (row.epoch, row.last_seq, row.spent) == (2, 5, {"usd": 5.0})
    assert seqs(store) == [1, 2, 3, 4, 5]
    store.commit("job-1", 2, [noted(6)], {})
    store.end("job-1", 2, "done", "", 1.0)
    assert not lock_file(path).exists()


def test_nobody_touches_what_a_living_driver_has_jotted_down(path, store):
    with child(NOTES_UNTIL_KILLED, path) as driver:
        driver.stdout.readline()
        with closing(SqliteStore(path)) as reader:
            assert reader.driven("job-1")
            assert seqs(reader) == [1]
            with pytest.raises(RunBusy):
                reader.take_over("job-1", BOB)
        assert lock_file(path).stat().st_size > 0
        driver.send_signal(signal.SIGKILL)
    assert store.take_over("job-1", BOB).last_seq == 5


def left(path, lines, *, epoch=1, after=0):
    path.write_bytes(lines)
    events, spent = notes.read_notes(path, epoch, after)
    return [event.seq for event in events], spent


def line(*numbers, epoch=1, spent=None):
    return json.dumps([epoch, spent or {}, [noted(seq) for seq in numbers]]).encode() + b"\n"


def changed(text, then, now):
    assert then in text
    return text.replace(then, now)


@pytest.mark.parametrize(
    ("lines", "after", "found"),
    [
        (b"", 0, []),
        (line(1, 2) + line(3), 0, [1, 2, 3]),
        (line(1, 2) + line(3), 1, [2, 3]),
        (line(1, 2) + line(3), 3, []),
        (line(1, 2) + line(4) + line(3), 0, [1, 2]),  # nothing after a gap
        (line(2, 3), 0, []),
        (line(1, 3), 0, []),
        (line(1) + line(2)[:-1], 0, [1]),  # half a line, even if it is all but its end
        (line(1) + line(2)[:20] + line(3), 0, [1]),
        (line(1) + b"\0\0\0\0\n" + line(2), 0, [1]),
        (line(1) + b"[1]\n" + line(2), 0, [1]),
        (line(1) + b'[1,{},[[2,"kind"]]]\n' + line(2), 0, [1]),
        (line(1) + b"[1,{},[[]]]\n" + line(2), 0, [1]),
        (line(1) + b"7\n", 0, [1]),
        (line(1) + b"[" * 100_000 + b"\n" + line(2), 0, [1]),
        *(
            (line(1) + changed(line(2), then, now) + line(2), 0, [1])
            for then, now in [
                (b'"\\"done\\""', b"7"),
                (b'\\"done\\"', b"\\ud800"),
                (b'"m/2"', b"null"),
                (b"[2, ", b"[2.0, "),
                (b"3.5", b'"x"'),
                (b"{}, [", b"5, ["),
                (b"{}, [", b'{"usd": "much"}, ['),
                (b'{}, "', b'[], "'),
            ]
        ),
        (line(1) + line(2, 3, epoch=2) + line(2), 0, [1, 2]),  # another driver's are not this one's
    ],
)
def test_what_is_left_goes_up_to_the_first_gap_or_damage(tmp_path, lines, after, found):
    assert left(tmp_path / "1.lock", lines, after=after)[0] == found


def test_what_was_spent_only_grows(path, store):
    killed(NOTES_UNTIL_KILLED, path)
    forget_checksums(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("""UPDATE runs SET spent = '{"usd": 2.0, "requests": 7}'""")
    assert store.take_over("job-1", BOB).spent == {"usd": 5.0, "requests": 7}


def test_what_was_spent_is_that_of_the_last_line_that_counts(tmp_path):
    lines = line(1, spent={"usd": 1.0}) + line(2, spent={"usd": 2.0}) + line(5, spent={"usd": 9.0})
    assert left(tmp_path / "1.lock", lines) == ([1, 2], {"usd": 2.0})


def test_a_store_that_can_not_be_written_just_now_is_opened_all_the_same_and_loses_nothing(path):
    killed(NOTES_UNTIL_KILLED, path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with closing(SqliteStore(path, busy_timeout=0.02)) as store:
            assert seqs(store) == [1]
    with closing(SqliteStore(path)) as store:
        assert seqs(store) == [1, 2, 3, 4, 5]


def test_what_belongs_to_a_store_that_was_moved_away_waits_for_it_and_is_not_taken_for_another_s(
    path, tmp_path
):
    killed(NOTES_UNTIL_KILLED, path)
    away = [(file, tmp_path / f"away{file.name}") for file in tmp_path.iterdir() if file.is_file()]
    for file, place in away:
        file.rename(place)
    with closing(SqliteStore(path)) as store:
        assert store.runs() == []
        assert lock_file(path).stat().st_size > 0
    for file in tmp_path.glob("runs.db*"):
        if file.is_file():
            file.unlink()
    for file, place in away:
        place.rename(file)
    with closing(SqliteStore(path)) as store:
        assert seqs(store) == [1, 2, 3, 4, 5]


def test_a_new_run_does_not_begin_with_another_s_jottings(path):
    lock_file(path).parent.mkdir()
    lock_file(path).write_bytes(line(1, 2))
    with closing(SqliteStore(path)) as store:
        begin(store)
        store.let_go("job-1")
        assert store.take_over("job-1", BOB).last_seq == 0


@pytest.mark.parametrize("name", ["1.lock.old", "x.lock", "notes", f"{10**20}.lock"])
def test_other_files_beside_the_locks_are_let_alone(path, name):
    lock_file(path).parent.mkdir()
    (lock_file(path).parent / name).write_text("mine")
    with closing(SqliteStore(path)) as store:
        begin(store)
    assert (lock_file(path).parent / name).read_text() == "mine"


def test_a_driver_that_was_replaced_writes_nothing_more(path, store):
    begin(store)
    lock_file(path).unlink()  # as a user might do, believing that the driver is gone
    with closing(SqliteStore(path)) as other:
        assert other.take_over("job-1", BOB).epoch == 2
        with pytest.raises(DriverReplaced):
            store.commit("job-1", 1, [noted(1), noted(2)], {})
    with closing(SqliteStore(path)) as last:
        assert last.take_over("job-1", ANN).last_seq == 0


def test_who_only_looks_does_not_keep_another_from_taking_over(path, store):
    """A look takes the lock for a moment.

    A process that wants it then tries again before it reports that the run is busy.
    """
    begin(store)
    store.let_go("job-1")
    with closing(SqliteStore(path)) as looking:
        assert looking._locks.take(1)

        def let_go(_seconds):
            looking._locks.free(1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("abreast.store.sqlite.store.pause", let_go)
            assert store.take_over("job-1", BOB).epoch == 2
            assert looking._locks.take(
                2
            )  # of a run that is still to come: a file was left by another store
            patch.setattr(
                "abreast.store.sqlite.store.pause", lambda _seconds: looking._locks.free(2)
            )
            assert begin(store).id == "job-2"


# --- trouble on the way ---


FULL_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
wal = sys.argv[1] + "-wal"
resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(wal).st_size, resource.RLIM_INFINITY))
"""


def test_a_reader_on_a_full_disk_does_not_throw_away_what_it_can_not_commit(path):
    killed(NOTES_UNTIL_KILLED, path)
    looks = (
        "store = SqliteStore(sys.argv[1]); say(len(store.events('job-1')), store.driven('job-1'))"
    )
    assert said_by(FULL_DISK + looks, path) == ["1 False"]
    assert lock_file(path).stat().st_size > 0
    with closing(SqliteStore(path)) as store:
        assert store.take_over("job-1", BOB).last_seq == 5


def test_a_reader_that_has_to_wait_for_a_writer_keeps_nobody_from_driving(path):
    killed(NOTES_UNTIL_KILLED, path)
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
        ThreadPoolExecutor() as pool,
    ):
        writer.execute("BEGIN IMMEDIATE")
        reading = pool.submit(SqliteStore, path)  # waits for the writer, to commit what is left
        driving = pool.submit(take_over, path)
        assert not wait([driving], timeout=0.3).done  # longer than it takes to be turned away
        writer.execute("COMMIT")
        assert driving.result() == (2, 5)
        reading.result().close()


def take_over(path):
    with closing(SqliteStore(path)) as store:
        row = store.take_over("job-1", BOB)
        return row.epoch, row.last_seq


def test_a_directory_that_can_not_be_written_keeps_no_run_locked():
    with tempfile.TemporaryDirectory() as folder:  # not pytest's, which another user can't reach
        path = Path(folder, "runs.db")
        killed(NOTES_UNTIL_KILLED, path)
        for file in [Path(folder), *Path(folder).iterdir(), lock_file(path)]:
            file.chmod(0o777)
        lock_file(path).parent.chmod(0o555)
        looks = """
step_down()
for _ in range(2):
    store = SqliteStore(sys.argv[1])
    say(store.get("job-1").last_seq, store.driven("job-1"))
    store.close()
try_it(lambda: SqliteStore(sys.argv[1]).take_over("job-1", BOB).epoch)
"""
        assert said_by(looks, path) == ["5 False", "5 False", "fine 2"]


def test_a_run_that_can_not_be_removed_keeps_what_is_jotted_down(path):
    with (
        closing(SqliteStore(path, busy_timeout=0.02)) as store,
        closing(sqlite3.connect(path)) as other,
    ):
        killed(NOTES_UNTIL_KILLED, path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked):
            store.remove("job-1")
        other.rollback()
        assert store.take_over("job-1", BOB).last_seq == 5


def test_one_bad_name_hides_no_run(path, tmp_path):
    killed(NOTES_UNTIL_KILLED, path)
    (lock_file(path).parent / "7.lock").symlink_to(tmp_path / "nowhere")
    with closing(SqliteStore(path)) as store:
        assert seqs(store) == [1, 2, 3, 4, 5]


def test_a_look_leaves_no_file_behind(path, store):
    begin(store)
    store.let_go("job-1")
    lock_file(path).touch()
    assert not store.driven("job-1")
    assert not lock_file(path).exists()


def test_a_driver_whose_file_was_removed_does_not_remove_its_successor_s(path, store):
    begin(store)
    lock_file(path).unlink()
    with closing(SqliteStore(path)) as other:
        other.take_over("job-1", BOB)
        store.let_go("job-1")
        assert other.driven("job-1")
        assert lock_file(path).exists()


def test_a_new_run_s_file_is_empty_before_the_run_is_there(path):
    """However its driver ends: else notes of another run would become the new run's."""
    lock_file(path).parent.mkdir()
    lock_file(path).write_bytes(line(1, 2))
    dies = """
store = SqliteStore(sys.argv[1])
def dies(*_):
    say("noted")
    sys.stdin.read()
store.get = dies
begin(store)
"""
    killed(dies, path)
    with closing(SqliteStore(path)) as store:
        assert [row.last_seq for row in store.runs()] == [0]
