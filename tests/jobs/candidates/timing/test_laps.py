"""Verdicts by laps: what is plain is decided early, and equal candidates are not, by simulation."""

import asyncio
import random
from collections import Counter

import pytest

from abreast.jobs.candidates.timing.laps import Lap, chance_of, judge_laps
from abreast.jobs.candidates.timing.measure import ARMS, MeasurePlan, measure, turns_of

RULES = {"threshold": 0.02, "alike": 0.05, "false_faster": MeasurePlan().false_faster_share}


def alike(candidate, *, laps, control=1.0):
    """So many laps, each with the same times."""
    return [Lap(1.0, candidate, control)] * laps


class LoudMachine:
    """A machine with bursts of other work, of any length and size: both have no finite variance.

    The processes of a block have a layout of memory that makes them faster or slower by a percent.
    """

    def __init__(self, seed, speedup=1.0):
        self._random, self._speedup = random.Random(seed), speedup
        self._left, self._burst = 0.0, 0.0
        self._layouts = {}

    def seconds(self, turn):
        draw = self._random
        if self._left <= 0:
            self._left = draw.paretovariate(1.1)
            self._burst = max(0.0, draw.paretovariate(1.2) - 1.5)
        self._left -= 1
        layout = self._layouts.setdefault((turn.block, turn.which), draw.gauss(1.0, 0.01))
        work = 1.0 / (self._speedup if turn.which == "candidate" else 1.0)
        return work * layout * (1 + self._burst) * draw.lognormvariate(0, 0.03)

    async def run_once(self, turn):
        return self.seconds(turn)


def speed_by_laps(seed, *, speedup, laps, blocks):
    """The verdict when the laps are judged after every block, and after how many of them."""
    machine, found = LoudMachine(seed, speedup), []
    for block in range(blocks):
        times = {(turn.lap, turn.which): machine.seconds(turn) for turn in turns_of(block, 1, laps)}
        found += [Lap(*(times[lap, which] for which in ARMS)) for lap in range(laps)]
        if (verdict := judge_laps(found, **RULES)) is not None:
            return verdict.speed, len(found)
    return None, len(found)


def test_twice_as_fast_in_each_of_eight_laps_is_faster():
    found = judge_laps(alike(0.25, laps=8), **RULES)
    assert found is not None
    assert (found.speed, found.candidate.low, found.candidate.high) == ("faster", 4.0, 4.0)
    assert judge_laps(alike(0.25, laps=7), **RULES) is None
    assert judge_laps(alike(0.6, laps=40), **RULES) is None
    # One lap in which it is not, and there is no verdict any more.
    assert judge_laps([*alike(0.25, laps=30), Lap(1.0, 0.6, 1.0)], **RULES) is None


def test_the_bounds_are_the_least_and_the_largest_ratio_of_any_lap():
    laps = [Lap(1.0, 0.25, 1.2), Lap(0.8, 0.2, 0.6), *alike(0.25, laps=6)]
    found = judge_laps(laps, **RULES)
    assert found is not None
    assert (found.candidate.low, found.candidate.high) == pytest.approx((3.0, 4.8))
    assert (found.control.low, found.control.high) == pytest.approx((1 / 1.2, 8 / 6))


def test_faster_must_pass_the_noise_of_the_same_laps():
    assert judge_laps(alike(0.25, laps=8, control=3.9), **RULES) is not None
    assert judge_laps(alike(0.25, laps=8, control=4.1), **RULES) is None
    assert judge_laps([*alike(0.25, laps=8), Lap(4.1, 0.25, 1.0)], **RULES) is None
    assert judge_laps(alike(0.25, laps=8), **RULES | {"threshold": 3.5}) is None


def test_the_slowest_in_each_of_eight_laps_is_slower():
    found = judge_laps(alike(1.3, laps=8), **RULES)
    assert found is not None
    assert (found.speed, found.candidate.ratio) == ("slower", pytest.approx(1 / 1.3))
    assert judge_laps(alike(1.3, laps=6), **RULES) is None
    assert judge_laps(alike(1.04, laps=100), **RULES) is None  # it may be the same
    assert judge_laps([*alike(1.3, laps=7), Lap(1.0, 1.3, 1.4)], **RULES) is None


def test_so_many_of_more_laps_are_enough_and_the_bounds_are_below_one():
    laps = [*alike(1.3, laps=14), *[Lap(2.0, 1.3, 1.0)] * 6]
    found = judge_laps(laps, **RULES)
    assert found is not None
    assert found.speed == "slower"
    assert found.candidate.low <= found.candidate.ratio <= found.candidate.high < 1
    assert judge_laps([*laps[1:], Lap(2.0, 1.3, 1.0)], **RULES) is None
    assert chance_of(range(14, 21), 20, 1 / 3) <= 1e-3 < chance_of(range(13, 21), 20, 1 / 3)


@pytest.mark.parametrize(("laps", "blocks"), [(2, 20), (8, 8)])
def test_equal_candidates_are_neither_faster_nor_slower_however_loud_the_machine(laps, blocks):
    found = Counter(
        speed_by_laps(seed, speedup=1.0, laps=laps, blocks=blocks)[0] for seed in range(300)
    )
    print(f"300 A/A runs by laps: {dict(found)}")  # noqa: T201 - the numbers are what it is run for
    assert found["faster"] == 0
    assert found["slower"] <= 2


@pytest.mark.parametrize(("speedup", "speed"), [(0.75, "slower"), (30.0, "faster")])
def test_what_is_plain_is_known_early_on_a_loud_machine(speedup, speed):
    known = [speed_by_laps(seed, speedup=speedup, laps=2, blocks=20) for seed in range(100)]
    decided = sorted(count for verdict, count in known if verdict == speed)
    assert len(decided) >= 75
    assert decided[len(decided) // 2] <= 14
    assert {verdict for verdict, _ in known} <= {speed, None}


@pytest.mark.parametrize(("speedup", "speed"), [(0.75, "slower"), (30.0, "faster")])
def test_measuring_stops_after_these_laps(speedup, speed):
    measured = [
        asyncio.run(measure(LoudMachine(seed, speedup).run_once, seed=seed)) for seed in range(40)
    ]
    assert {one.verdict for one in measured} == {speed}
    blocks = sorted(one.blocks for one in measured)
    assert blocks[0] == 4  # of two laps
    assert blocks[20] <= 7


async def test_what_is_plain_is_known_in_the_middle_of_a_block():
    made = []

    async def run_once(turn):
        made.append(turn)
        return 0.1 if turn.which == "candidate" else 1.0

    found = await measure(run_once, plan=MeasurePlan(laps=12))
    assert (found.verdict, found.blocks, len(made)) == ("faster", 1, 8 * 3)
    assert {len(times) for arm in found.times.values() for times in arm} == {8}


async def test_slower_by_laps_needs_the_processes_of_two_blocks():
    made = []

    async def run_once(turn):
        made.append(turn)
        return 1.3 if turn.which == "candidate" else 1.0

    found = await measure(run_once, plan=MeasurePlan(laps=12))
    assert (found.verdict, found.blocks, len(made)) == ("slower", 2, 24 * 3)


def test_chances_of_thousands_of_laps_are_known():
    assert chance_of(range(2001), 2000, 1 / 3) == pytest.approx(1.0)
    assert 0 < chance_of(range(750, 2001), 2000, 1 / 3) < 1e-3
    assert judge_laps(alike(1.3, laps=2000), **RULES).speed == "slower"
