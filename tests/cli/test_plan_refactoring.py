"""The trial of `benchmarks.refactoring`, with a small package in place of networkx."""

import pytest

from benchmarks.refactoring.__main__ import table
from benchmarks.refactoring.agent import MEETING
from benchmarks.refactoring.sources import IN_SMALL, make_repository, write_small
from benchmarks.refactoring.trial import Findings, Printed, Trial

AREAS = 5


@pytest.fixture
def trial(abreast):
    """The trial in a repository with a package of some directories."""
    (abreast.folder / ".git").rmdir()
    write_small(abreast.folder, AREAS)
    make_repository(abreast.folder)

    def run(folder, words, given, environment):
        own = {name: environment[name] for name in (MEETING,) if name in environment}
        said = abreast(*words, given=given, cwd=folder, **own)
        return Printed(said.code, said.out, said.err)

    return Trial(abreast.folder, IN_SMALL, tests=(), say=lambda _: None, abreast=run)


def test_ten_agents_rename_a_name_ask_each_other_and_one_undo_brings_every_byte_back(
    trial, monkeypatch
):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    found = trial.play()
    assert found.faults() == []
    # A part for the top, two for each area, and one more, since one is split.
    assert (found.parts, found.asked_parts, found.requests) == (2 * AREAS + 2, AREAS, 3 * AREAS)
    assert found.agents == found.parts + found.asked_parts
    assert (found.peak, found.peak_seen, found.gate) == (10, 10, "passed")
    assert len(found.conflicts) == 3
    assert found.tests_before == found.tests_after == {"passed": 3 * AREAS}
    assert ("undo exact", "yes") in table(found)
    found.undo_differences.append("shop/prices.py")
    assert found.faults() == ["not as before: shop/prices.py"]


def test_a_trial_in_which_nothing_happened_is_wrong_in_every_way():
    assert len(Findings(undo_differences=["a"], tests_after={"failed": 1}).faults()) == 7
