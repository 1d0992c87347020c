"""Fixtures: processes to fork the commands of pages from."""

from contextlib import closing

import pytest

from tests.cli.forks import Forks


@pytest.fixture(scope="session")
def forks():
    with closing(Forks()) as processes:
        yield processes
