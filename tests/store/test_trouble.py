"""Every way a disk can fail is one clear sentence, and nothing acknowledged is lost."""

import errno
import os
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from abreast.core.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked, StoreReadOnly
from abreast.store import os_errors
from abreast.store.port import each_event
from abreast.store.sqlite.store import SqliteStore
from tests.store.children import said_by
from tests.store.contract import BOB, begin, fill, settled, sqlite_error


@pytest.fixture
def open_folder():
    """A folder that another user can walk into, as pytest's own can't be."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


# --- damaged, or no store ---


def test_random_bytes_are_no_store(path):
    path.write_bytes(os.urandom(20_000))
    with pytest.raises(StoreCorrupt, match=f"{path} is not an abreast store, or is damaged"):
        SqliteStore(path)


def test_a_folder_is_no_store(tmp_path):
    with pytest.raises(StoreCorrupt, match="is a directory"):
        SqliteStore(tmp_path)


def test_a_file_where_a_folder_should_be_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file/runs\.db can't be used"):
        SqliteStore(tmp_path / "file" / "runs.db")


def read_all(path):
    with closing(SqliteStore(path)) as store:
        return sum(1 for _ in each_event(store, "job-1"))


def test_a_truncated_store_is_said_to_be_damaged(store, path):
    fill(store)
    store.close()
    assert read_all(path) == 2000
    os.truncate(path, path.stat().st_size // 2 // 4096 * 4096)
    with pytest.raises(StoreCorrupt, match=str(path)):
        read_all(path)


def test_a_flipped_page_is_said_to_be_damaged(store, path):
    fill(store)
    store.close()
    content = bytearray(path.read_bytes())
    for page in range(5, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = bytes(
            byte ^ 0xFF for byte in content[page * 4096 : page * 4096 + 64]
        )
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=f"{path} is not an abreast store, or is damaged"):
        read_all(path)


# --- read-only ---


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o777), (0o666, 0o555)])
def test_a_store_that_may_not_be_written_is_one_clear_error(open_folder, file_mode, folder_mode):
    path = open_folder / "runs.db"
    SqliteStore(path).close()
    path.chmod(file_mode)
    open_folder.chmod(folder_mode)
    said = said_by("step_down(); try_it(lambda: SqliteStore(sys.argv[1]))", path)
    assert len(said) == 1
    assert said[0].startswith(f"StoreReadOnly {path} can't be written, or its directory can't")


def test_a_folder_that_may_not_be_written_is_one_clear_error(open_folder):
    path = open_folder / "new" / "runs.db"
    said = said_by("step_down(); try_it(lambda: SqliteStore(sys.argv[1]))", path)
    assert said[0].startswith(f"StoreReadOnly {path} can't be written")


def test_a_backup_to_where_nothing_may_be_written_names_the_copy(open_folder, path):
    open_folder.chmod(0o555)
    script = """
store = SqliteStore(sys.argv[1])
store.runs()
step_down()
try_it(lambda: store.backup(sys.argv[2]))
os._exit(0)
"""
    said = said_by(script, path, open_folder / "copy.db")
    assert said[0].startswith(f"StoreReadOnly {open_folder}/copy.db can't be written")


# --- a full disk ---


@pytest.fixture
def small_disk(tmp_path):
    """A real file system with room for one megabyte, where we may mount one."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting isn't permitted here")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def test_on_a_full_disk_nothing_acknowledged_is_lost_and_the_batch_can_be_tried_again(small_disk):
    with closing(SqliteStore(small_disk / "runs.db")) as store:
        begin(store)
        batches = [
            [settled(n * 10 + k, f"m/{n}/{k}", "x" * 4000) for k in range(1, 11)]
            for n in range(100)
        ]
        done: list = []

        def commit(batch):
            store.commit("job-1", 1, batch, {})
            done.extend(found.seq for found in batch)

        with pytest.raises(StoreFull, match=r"runs\.db can't grow: the disk is full"):
            for _ in map(commit, batches):
                pass
        assert done
        assert [found.seq for found in each_event(store, "job-1")] == done
        assert store.get("job-1").last_seq == done[-1]
        subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
        commit(batches[len(done) // 10])
        assert [found.seq for found in each_event(store, "job-1")] == done


def test_past_a_limit_of_file_size_nothing_acknowledged_is_lost(path):
    script = """
import resource
store = SqliteStore(sys.argv[1])
begin(store)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
done = 0
try:
    while True:
        seqs = range(done + 1, done + 11)
        store.commit("job-1", 1, [settled(seq, f"m/{seq}", "x" * 4000) for seq in seqs], {})
        done += 10
except StoreError as error:
    say(type(error).__name__, done, error)
say([found.seq for found in store.events("job-1")] == list(range(1, done + 1)))
os._exit(0)
"""
    full, intact = said_by(script, path)
    assert full.startswith("StoreFull ")
    assert f"{path} can't grow" in full
    assert intact == "True"
    with closing(SqliteStore(path)) as store:
        assert store.take_over("job-1", BOB).last_seq == int(full.split()[1]) > 0


# --- clear sentences ---


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sqlite_error(sqlite3.SQLITE_FULL), StoreFull),
        (sqlite_error(sqlite3.SQLITE_IOERR_WRITE), StoreFull),
        (sqlite_error(sqlite3.SQLITE_IOERR_SHMSIZE), StoreFull),
        (OSError(errno.ENOSPC, "No space left on device"), StoreFull),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), StoreFull),
        (sqlite_error(sqlite3.SQLITE_BUSY_RECOVERY), StoreLocked),
        (sqlite_error(sqlite3.SQLITE_LOCKED), StoreLocked),
        (sqlite_error(sqlite3.SQLITE_CORRUPT_INDEX), StoreCorrupt),
        (sqlite_error(sqlite3.SQLITE_NOTADB), StoreCorrupt),
        (sqlite_error(sqlite3.SQLITE_IOERR_SHORT_READ), StoreCorrupt),
        (sqlite_error(sqlite3.SQLITE_READONLY_DIRECTORY), StoreReadOnly),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN), StoreReadOnly),
        (OSError(errno.EROFS, "Read-only file system"), StoreReadOnly),
        (PermissionError(errno.EACCES, "Permission denied"), StoreReadOnly),
        (sqlite_error(sqlite3.SQLITE_IOERR_READ), StoreError),
        (sqlite3.ProgrammingError("no code at all"), StoreError),
        (OSError("no number at all"), StoreError),
    ],
)
def test_whatever_goes_wrong_below_is_one_sentence_that_names_the_file(error, kind):
    with pytest.raises(StoreError) as told, os_errors.as_store_error("/x/runs.db"):
        raise error
    assert type(told.value) is kind
    assert str(told.value).startswith("/x/runs.db ")
    assert "\n" not in str(told.value)
    assert told.value.__cause__ is error
