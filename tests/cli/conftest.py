"""Fixtures: a new project for each test, and a function that runs abreast in it."""

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def abreast(tmp_path, warm):
    folder = tmp_path / "project"
    folder.mkdir()
    return Shell(folder, warm)
