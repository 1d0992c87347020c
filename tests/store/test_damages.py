"""Random damage, in short: `python -m benchmarks.chaos.damages` makes a thousand tries."""

import pytest

from benchmarks.chaos.damages import damage_at_random


def test_of_random_damages_all_are_told_and_no_unfinished_run_is_taken_for_complete():
    found = damage_at_random(12, seed=2)
    assert found.is_right, found.examples
    assert found.found["told"] > 0


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_of_a_thousand_random_damages_all_are_told():
    found = damage_at_random(1000, seed=7)
    assert found.is_right, found.examples
