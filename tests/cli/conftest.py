"""Fixtures: a new project for each test, and a function that runs abreast in it."""

from contextlib import closing

import pytest

from tests.cli.forks import ForkingShell, Forks


@pytest.fixture(scope="session")
def warm():
    """Processes that have imported abreast, to fork from."""
    with closing(Forks()) as forks:
        yield forks


@pytest.fixture
def abreast(tmp_path, warm):
    folder = tmp_path / "project"
    folder.mkdir()
    return ForkingShell(folder, warm)
