"""Fixtures: processes to fork the commands of pages from, and the weights of the embedded model."""

import os
from contextlib import closing

import pytest

from abreast.core.errors import NoSuchModel
from abreast.models.embedded import weights
from abreast.system.paths import cache_directory
from tests.cli.forks import Forks


@pytest.fixture(scope="session")
def forks():
    with closing(Forks()) as processes:
        yield processes


@pytest.fixture
def embedded(monkeypatch):
    """The weights, found from a reader's home too."""
    try:
        weights.fetch(weights.SMOLLM2)
    except NoSuchModel as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    cache = cache_directory()
    if cache.name != "abreast":
        pytest.skip(f"{cache} is not where a reader would have it")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
