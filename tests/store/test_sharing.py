"""Many at one file: threads, processes, and drivers that die."""

import errno
import fcntl
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from abreast.core.errors import DriverReplaced, RunBusy, StoreError, StoreLocked
from abreast.store.driver_locks import DriverLocks
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from tests.store.children import child, said_by
from tests.store.contract import BOB, begin, event, settled

# --- many at one file ---


def test_a_file_kept_locked_for_too_long_is_one_clear_error_and_the_batch_can_be_tried_again(path):
    with (
        closing(SqliteStore(path, busy_timeout=0.02)) as store,
        closing(sqlite3.connect(path)) as other,
    ):
        begin(store)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreLocked, match=f"^{path} was kept locked by another process for too long$"
        ):
            store.commit("job-1", 1, [event(1)], {})
        other.rollback()
        store.commit("job-1", 1, [event(1)], {})
        assert store.events("job-1") == [event(1)]


def test_a_new_file_kept_locked_for_too_long_is_one_clear_error(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(
            "PRAGMA application_id = 1633841765"
        )  # ours, so that only the lock stands in the way
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked):
            SqliteStore(path, busy_timeout=0.02)


def write_a_run(store, n):
    run_id = begin(store, f"w{n}").id
    for batch in range(3):
        store.commit(run_id, 1, [settled(batch * 2 + k, f"m/{batch}/{k}") for k in (1, 2)], {})
    store.end(run_id, 1, "done", "", 1.0)


def read_while(path, start, over):
    """Look again and again; how often, and the runs of which half a batch was seen."""
    looks, halves = 0, []
    with closing(SqliteStore(path)) as reader:
        start.wait()
        while not over.is_set():
            halves += [row.id for row in reader.runs(limit=20) if len(reader.events(row.id)) % 2]
            looks += 1
    return looks, halves


def test_two_hundred_writers_and_a_live_reader_never_see_a_lock(store, path):
    writers = 200
    start, over = threading.Barrier(writers + 1), threading.Event()

    def write(n):
        start.wait()
        if n % 20:
            write_a_run(store, n)
        else:  # ten of them as other processes would
            with closing(SqliteStore(path)) as own:
                write_a_run(own, n)

    with ThreadPoolExecutor(writers + 1) as pool:
        reader = pool.submit(read_while, path, start, over)
        writing = [pool.submit(write, n) for n in range(writers)]
        try:
            for each in writing:
                each.result()
        finally:
            over.set()
        looks, halves = reader.result()
    assert looks > 0
    assert halves == []
    assert len(store.runs(state="done", limit=1000)) == writers
    assert all(len(store.outcomes(f"w{n}-1")) == 6 for n in range(writers))


def test_two_processes_drive_runs_of_one_store_without_a_locked_error(store, path):
    script = """
store = SqliteStore(sys.argv[1])
run_id = begin(store, "theirs").id
say("begun")
for seq in range(1, 101):
    store.commit(run_id, 1, [settled(seq, f"m/{seq}")], {})
store.end(run_id, 1, "done", "", 1.0)
store.close()
say("done")
"""
    with child(script, path) as other:
        assert other.stdout.readline() == "begun\n"
        begin(store, "ours")
        for seq in range(1, 101):
            store.commit("ours-1", 1, [settled(seq, f"m/{seq}")], {})
        assert other.stdout.readline() == "done\n"
    assert len(store.outcomes("ours-1")) == len(store.outcomes("theirs-1")) == 100


def test_a_second_store_in_the_same_process_costs_the_first_nothing(path):
    """Closing a file releases all locks of the process on it: another could remove the log."""
    script = """
first = SqliteStore(sys.argv[1])
begin(first)
SqliteStore(sys.argv[1]).close()
say("opened")
sys.stdin.readline()
first.commit("job-1", 1, [settled(1, "m/1")], {})
first.sync()
say("committed")
sys.stdin.read()
"""
    with child(script, path) as driver:
        driver.stdout.readline()
        said_by("SqliteStore(sys.argv[1]).close()", path)
        driver.stdin.write("\n")
        driver.stdin.flush()
        assert driver.stdout.readline() == "committed\n"
        driver.kill()
    with closing(SqliteStore(path)) as store:
        assert [found.seq for found in store.events("job-1")] == [1]


# --- death and locks ---


DRIVES_UNTIL_KILLED = """
store = SqliteStore(sys.argv[1])
begin(store)
batch = 0
while True:
    first = batch * 7
    events = [settled(first + n, f"m/{first + n}", "x" * 500) for n in range(1, 8)]
    batch += 1
    store.commit("job-1", 1, events, {"batches": batch})
    say(batch)
"""


@pytest.mark.parametrize("acknowledged", [1, 2, 3, 5, 8, 13, 40])
def test_a_driver_killed_in_the_middle_of_commits_loses_nothing_and_leaves_no_half_batch(
    path, acknowledged
):
    with child(DRIVES_UNTIL_KILLED, path) as driver:
        for _ in range(acknowledged):
            driver.stdout.readline()
        driver.kill()
        last = [int(line) for line in driver.stdout.read().split()][-1:] or [acknowledged]
    with closing(SqliteStore(path)) as store:
        row = store.take_over("job-1", BOB)
        seqs = [found.seq for found in each_event(store, "job-1")]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) % 7 == 0
        assert len(seqs) // 7 >= last[0]
        assert (row.last_seq, row.spent) == (len(seqs), {"batches": len(seqs) // 7})
        assert len(store.recorded("job-1", [f"m/{seq}" for seq in seqs])) == len(seqs)


def test_a_killed_driver_can_be_replaced_at_once(store, path):
    with child(
        "store = SqliteStore(sys.argv[1]); begin(store); say('begun'); sys.stdin.read()", path
    ) as driver:
        driver.stdout.readline()
        with pytest.raises(RunBusy, match=r"process 11 on here \(abreast map\)"):
            store.take_over("job-1", BOB)
        driver.kill()
        driver.wait()
        assert store.take_over("job-1", BOB).epoch == 2


def test_a_lock_does_not_outlive_its_process_in_a_forked_child(store, path):
    script = """
store = SqliteStore(sys.argv[1])
begin(store)
if os.fork() == 0:
    say("forked")
    os.read(0, 1)  # goes on after its parent was killed
    os._exit(0)
os.waitpid(-1, 0)
"""
    with child(script, path) as driver:
        driver.stdout.readline()
        with pytest.raises(RunBusy):
            store.take_over("job-1", BOB)  # the parent's, still
        driver.kill()
        driver.wait()
        assert store.take_over("job-1", BOB).epoch == 2


def test_a_lock_does_not_outlive_its_process_in_a_program_it_started(store, path):
    script = """
import subprocess
store = SqliteStore(sys.argv[1])
begin(store)
# The program itself reports that it runs: when Popen returns, its exec may not yet have closed
# the lock's file.
started = "import sys; print('started', flush=True); sys.stdin.read()"
subprocess.Popen([sys.executable, "-c", started], close_fds=False)
os.wait()
"""
    with child(script, path) as driver:
        driver.stdout.readline()
        driver.kill()
        driver.wait()
        assert store.take_over("job-1", BOB).epoch == 2


def test_a_lock_file_goes_when_its_run_has_ended(store, path):
    locks = Path(f"{path}-locks")
    begin(store)
    begin(store)
    assert len(list(locks.iterdir())) == 2
    store.end("job-1", 1, "done", "", 1.0)
    store.let_go("job-2")
    assert list(locks.iterdir()) == []


def test_a_lock_taken_on_a_file_that_was_just_unlinked_is_taken_again(tmp_path, monkeypatch):
    real, calls = fcntl.flock, []

    def raced(opened, how):
        if not calls:
            (
                tmp_path / "7.lock"
            ).unlink()  # its holder let go for good, between our open and our lock
        elif len(calls) == 1:
            (tmp_path / "7.lock").unlink()
            (tmp_path / "7.lock").touch()  # and here a third one has made it anew
        calls.append(opened)
        real(opened, how)

    monkeypatch.setattr(fcntl, "flock", raced)
    first, second = DriverLocks(str(tmp_path)), DriverLocks(str(tmp_path))
    assert first.take(7)
    assert len(calls) == 3
    assert not second.take(7)
    first.close()
    assert second.take(7)
    second.close()


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_lock_that_cannot_be_had_leaves_no_open_file(tmp_path, monkeypatch):
    def broken(_opened, _how):
        raise OSError(errno.ENOLCK, "no locks")

    before = open_files()
    monkeypatch.setattr(fcntl, "flock", broken)
    with (
        closing(SqliteStore(tmp_path / "runs.db")) as store,
        pytest.raises(StoreError, match="no locks"),
    ):
        begin(store)
    assert open_files() == before


def test_a_run_that_could_not_be_committed_is_not_begun_and_holds_no_lock(path):
    with (
        closing(SqliteStore(path, busy_timeout=0.02)) as store,
        closing(sqlite3.connect(path)) as other,
    ):
        begin(store)
        store.let_go("job-1")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked):
            begin(store)
        with pytest.raises(StoreLocked):
            store.take_over("job-1", BOB)
        with pytest.raises(StoreLocked):
            store.remove("job-1")
        other.rollback()
        assert store._locks._held == {}
        assert store.take_over("job-1", BOB).epoch == 2
        assert begin(store).id == "job-2"


def test_an_end_that_fails_keeps_the_hold_so_that_it_can_be_said_again(path):
    with (
        closing(SqliteStore(path, busy_timeout=0.02)) as store,
        closing(sqlite3.connect(path)) as other,
    ):
        begin(store)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked):
            store.end("job-1", 1, "done", "", 1.0)
        other.rollback()
        with pytest.raises(RunBusy):
            store.take_over("job-1", BOB)
        store.end("job-1", 1, "done", "", 1.0)
        assert store.take_over("job-1", BOB).epoch == 2


def test_the_lock_of_a_number_that_a_stranger_holds_is_respected(store, path):
    begin(store)
    stranger = DriverLocks(f"{path}-locks")
    assert stranger.take(2)
    with pytest.raises(RunBusy, match="the lock of the new run job-2 is held by another process"):
        begin(store)
    stranger.close()
    assert begin(store).id == "job-2"


def test_a_run_removed_by_another_is_no_trouble_when_pruning(store, path, monkeypatch):
    begin(store)
    store.end("job-1", 1, "done", "", 1.0)
    real = SqliteStore.remove

    def beaten(self, run_id):
        real(self, run_id)
        real(self, run_id)

    monkeypatch.setattr(SqliteStore, "remove", beaten)
    assert store.prune(10.0) == []


def test_the_epoch_holds_even_if_the_lock_does_not(store, path):
    begin(store)
    for file in Path(f"{path}-locks").iterdir():
        file.unlink()  # by hand, or by a cleaner of temporary files
    with closing(SqliteStore(path)) as other:
        other.take_over("job-1", BOB)
        with pytest.raises(DriverReplaced, match="process 22"):
            store.commit("job-1", 1, [event(1)], {})
        other.commit("job-1", 2, [event(1)], {})


def test_a_commit_by_another_handle_of_the_same_epoch_is_taken(store, path):
    begin(store)
    with closing(SqliteStore(path)) as other:
        other.commit("job-1", 1, [event(1)], {})
    assert store.events("job-1") == [event(1)]
