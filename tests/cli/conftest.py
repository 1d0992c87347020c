"""A project of its own for each test, and abreast in it."""

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def abreast(tmp_path, warm):
    folder = tmp_path / "project"
    folder.mkdir()
    return Shell(folder, warm)
