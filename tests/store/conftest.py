"""A store on disk for each test that asks for one."""

from contextlib import closing

import pytest

from abreast.store.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


@pytest.fixture
def store(path):
    with closing(SqliteStore(path)) as store:
        yield store
