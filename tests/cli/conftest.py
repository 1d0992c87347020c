"""A project of its own for each test, and abreast in it."""

from contextlib import closing

import pytest

from tests.cli.shell import Shell, plain_environment
from tests.cli.warm import Warm


@pytest.fixture(scope="session")
def warm():
    with closing(Warm(plain_environment())) as process:
        yield process


@pytest.fixture
def abreast(tmp_path, warm):
    folder = tmp_path / "project"
    folder.mkdir()
    return Shell(folder, warm)
