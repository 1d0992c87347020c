"""A store that may not be written is read by way of a copy, which goes when it is closed."""

import os
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from abreast.core.errors import StoreCorrupt, StoreReadOnly
from abreast.store.read_only_copy import CopiedStore
from abreast.store.sqlite.store import SqliteStore
from tests.store.children import said_by
from tests.store.contract import ANN, begin, event, settled


@pytest.fixture
def open_folder():
    """A folder that another user can walk into, as pytest's own can't be."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o755)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode"), [(0o444, 0o777), (0o666, 0o555), (0o444, 0o555)]
)
def test_a_user_who_may_only_read_it_sees_its_runs_and_can_write_none(
    open_folder, file_mode, folder_mode
):
    path = open_folder / "runs.db"
    with closing(SqliteStore(path)) as store:
        row = begin(store)
        store.commit(row.id, row.epoch, [event(1), settled(2, "job/map/0001")], {})
    path.chmod(file_mode)
    open_folder.chmod(folder_mode)
    script = """
import tempfile
from abreast.store.read_only_copy import CopiedStore
step_down()
store = CopiedStore(sys.argv[1])
say([row.id for row in store.runs()], len(store.events("job-1")), store.driven("job-1"), store.url)
try_it(lambda: begin(store))
try_it(lambda: store.remove("job-1"))
store.close()
"""
    said = said_by(script, path)
    assert said[0] == f"['job-1'] 2 False sqlite:///{path}"
    assert [line.startswith(f"StoreReadOnly {path} can't be written") for line in said[1:]] == [
        True,
        True,
    ]


def test_a_run_that_is_driven_is_seen_to_be_and_the_copy_is_of_this_moment(path):
    with closing(SqliteStore(path)) as store:
        row = begin(store)
        with closing(CopiedStore(path)) as copied:
            assert copied.driven(row.id)
            store.commit(row.id, row.epoch, [event(1)], {})
            assert (len(store.events(row.id)), copied.events(row.id)) == (1, [])
            with pytest.raises(StoreReadOnly, match="it was opened for reading"):
                copied.take_over(row.id, ANN)


def test_the_copy_goes_when_it_is_closed_or_can_not_be_opened(path, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    temporary = Path(tempfile.gettempdir())
    temporary.mkdir()
    SqliteStore(path).close()
    with closing(CopiedStore(path)):
        assert len(list(temporary.iterdir())) == 1
    path.write_bytes(os.urandom(20_000))
    with pytest.raises(StoreCorrupt):
        CopiedStore(path)
    assert list(temporary.iterdir()) == []
