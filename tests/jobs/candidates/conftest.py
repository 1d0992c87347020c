"""A process to fork traced runs from, for the tests that need no confinement."""

from contextlib import closing

import pytest

from abreast.jobs.candidates.behaviour import traced_run
from tests.jobs.candidates.warm_child import WarmChild
from tests.jobs.candidates.watched import use_cache


@pytest.fixture(scope="session")
def warm_child():
    with closing(WarmChild()) as child:
        yield child


@pytest.fixture
def unconfined(warm_child, monkeypatch, tmp_path):
    """Traced runs are forked from a warm process, and not confined."""
    use_cache(monkeypatch, tmp_path)
    monkeypatch.setattr(traced_run, "run_confined", warm_child.run)
