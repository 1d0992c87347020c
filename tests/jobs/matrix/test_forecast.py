"""Forecasts: the interval holds the truth, most of the time."""

import random

import pytest

from abreast.jobs.matrix.forecast import ArmSeen, ForecastInterval, forecast, total


def test_amounts_that_are_all_alike_leave_no_doubt():
    assert total([2.0, 2.0, 2.0], 10, 99.0) == ForecastInterval(20.0, 20.0, 20.0)


def test_nothing_known_is_a_guess_with_wide_bounds():
    low, likely, high = total([], 10, 3.0)
    assert (low, likely, high) == (pytest.approx(7.5), 30.0, pytest.approx(52.5))
    assert total([3.0], 10, 99.0).likely == 30.0


def test_lanes_run_side_by_side_and_the_slowest_is_named():
    found = forecast(
        [
            ArmSeen("a", 10, seconds=[1.0, 1.0]),
            ArmSeen("b", 10, seconds=[3.0, 3.0]),
            ArmSeen("b", 0),
        ],
        width=2,
    )
    assert found.bottleneck == "b"
    assert found.cells == 20
    assert 15.0 <= found.seconds.likely <= 16.5
    assert forecast([], 4).bottleneck is None


@pytest.mark.parametrize("heavy", [False, True], ids=["even", "long tail"])
def test_the_interval_holds_the_truth_in_at_least_80_of_100_studies(heavy):
    held_usd = held_seconds = 0
    for seed in range(100):
        chance = random.Random(seed)
        arms, usd, seconds = [], 0.0, {}
        for number in range(6):
            lane, mean = f"lane{number % 3}", chance.uniform(0.5, 3.0)

            def cell(mean=mean, chance=chance):
                return (
                    chance.lognormvariate(0.0, 0.8) * mean
                    if heavy
                    else chance.uniform(0.5, 1.5) * mean
                )

            seen, left = [cell() for _ in range(12)], [cell() for _ in range(108)]
            usd += sum(left)
            seconds[lane] = seconds.get(lane, 0.0) + sum(left) / 4
            arms.append(ArmSeen(lane, len(left), seen, seen, seen))
        found = forecast(arms, width=4)
        held_usd += found.usd.low <= usd <= found.usd.high
        held_seconds += found.seconds.low <= max(seconds.values()) <= found.seconds.high
    assert held_usd >= 80
    assert held_seconds >= 80
