"""Measuring: the plan, the statistics, and the verdicts on noisy machines."""

import asyncio
import math
import sys
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abreast.jobs.candidates.timing.intervals import Interval, interval, student_t
from abreast.jobs.candidates.timing.measure import (
    ARMS,
    MeasurePlan,
    TimedTurn,
    is_hopeless,
    judge_times,
    measure,
    turns_of,
)
from tests.jobs.candidates.machine import NOISES, SHARED, Machine


def verdicts(runs, speedup, *, noises=NOISES, laps=2):
    """Count the verdicts of this many measurements, on machines with every kind of noise."""
    found, plan = Counter(), MeasurePlan(laps=laps)
    for seed in range(runs):
        machine = Machine(noises[seed % len(noises)], seed, speedup)
        found[asyncio.run(measure(machine.run_once, plan=plan, seed=seed)).verdict] += 1
    return found


# --- the plan


def test_a_block_runs_each_arm_there_and_back_with_one_seed():
    orders, drawn_again = set(), 0
    for block in range(60):
        turns = turns_of(block, 7)
        assert [turn.which for turn in turns] == [turn.which for turn in turns[::-1]]
        assert [turn.lap for turn in turns] == [0, 0, 0, 1, 1, 1]
        longer = turns_of(block, 7, 4)
        assert longer[:6] == turns
        assert [turn.which for turn in longer[6:]] == [turn.which for turn in longer[:5:-1]]
        assert [turn.lap for turn in longer[6:]] == [2, 2, 2, 3, 3, 3]
        drawn_again += longer[6].which != turns[0].which
        assert sorted(turn.which for turn in turns) == sorted(ARMS * 2)
        assert len({(turn.block, turn.seed) for turn in turns}) == 1
        orders.add(tuple(turn.which for turn in turns[:3]))
    assert len(orders) == 6
    assert 20 < drawn_again < 60  # two of three on average
    assert len({turns_of(block, 7)[0].seed for block in range(60)}) == 60
    assert turns_of(3, 7) == turns_of(3, 7) != turns_of(3, 8)


async def test_one_run_at_a_time_in_the_order_of_the_plan():
    machine, running = Machine("quiet", 1), 0

    async def run_once(turn):
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        return await machine.run_once(turn)

    measured = await measure(run_once, seed=3)
    planned = [turn for block in range(measured.blocks) for turn in turns_of(block, 3)]
    assert machine.turns == planned
    assert isinstance(machine.turns[0], TimedTurn)
    assert {len(times) for times in measured.times.values()} == {measured.blocks}


async def test_the_number_of_runs_is_bounded():
    plan = MeasurePlan(first=6, most=9)
    assert plan.looks == (6, 8, 9)
    machine = Machine("all", 1, speedup=1.005)
    measured = await measure(machine.run_once, plan=plan)
    assert measured.verdict in ("undecided", "same")
    assert len(machine.turns) == 9 * 6
    assert MeasurePlan().looks[0] == 6
    assert MeasurePlan().looks[-1] == 112


async def test_of_two_laps_the_quicker_counts():
    async def run_once(turn):
        return {"original": 1.0, "candidate": 0.7, "control": 1.0}[turn.which] * (1 + 2 * turn.lap)

    measured = await measure(run_once, plan=MeasurePlan(laps=2))
    assert (measured.verdict, measured.candidate.ratio) == ("faster", pytest.approx(1 / 0.7))
    assert measured.times["candidate"][0] == pytest.approx((0.7, 2.1))


async def test_of_more_laps_only_runs_of_the_same_lap_are_compared():
    speeds = (1.0, 3.0, 1.5, 2.0)  # of the machine: no run of a lap is like one of another

    async def run_once(turn):
        lucky = 0.2 if (turn.which, turn.lap) == ("original", 1) else 1.0
        return {"candidate": 0.7}.get(turn.which, 1.0) * speeds[turn.lap] * lucky

    measured = await measure(run_once, plan=MeasurePlan(laps=4))
    assert (measured.verdict, measured.candidate.ratio) == ("faster", pytest.approx(1 / 0.7))
    assert measured.noise_floor == pytest.approx(0.0)


async def test_the_same_times_give_the_same_verdict():
    one, other = [await measure(Machine("all", 5, 1.04).run_once, seed=2) for _ in range(2)]
    assert one == other


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
async def test_what_is_no_time_is_an_error(seconds):
    async def run_once(turn):
        return seconds

    with pytest.raises(ValueError, match="no time"):
        await measure(run_once)


async def test_what_a_run_raises_goes_on():
    async def run_once(turn):
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await measure(run_once)


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 3},
        {"first": 20, "most": 10},
        {"threshold": -0.1},
        {"false_faster": 0},
        {"growth": 1},
        {"resamples": 2},
        {"laps": 0},
        {"laps": 3},
        {"laps": -1},
    ],
)
def test_a_plan_that_makes_no_sense_is_an_error(wrong):
    with pytest.raises(ValueError, match=r"plan|laps"):
        MeasurePlan(**wrong)


# --- the statistics


def test_the_quantiles_are_students():
    # From the tables: t for 99.95%, with few degrees of freedom and with many.
    table = (
        (1, 636.619),
        (2, 31.599),
        (3, 12.924),
        (4, 8.610),
        (7, 5.408),
        (10, 4.587),
        (30, 3.646),
        (100, 3.390),
    )
    for freedom, expected in table:
        assert student_t(0.9995, freedom) == pytest.approx(expected, rel=0.0002)


def test_an_interval_by_hand():
    same = interval([0.1] * 20, 0.999, 100, 1)
    assert (same.ratio, same.low, same.high) == pytest.approx((math.exp(0.1),) * 3)
    logs = [0.1 + (0.01 if at % 2 else -0.01) for at in range(40)]
    found = interval(logs, 0.999, 200, 1)
    assert found.low < math.exp(0.1) < found.high
    assert interval([*logs[:-1], 50.0], 0.999, 200, 1).ratio == pytest.approx(found.ratio, rel=0.01)
    assert interval(logs, 0.9999, 200, 1).low < found.low
    assert interval(logs, 0.999, 200, 2) != found == interval(logs, 0.999, 200, 1)


def test_neighbours_that_resemble_each_other_widen_the_interval():
    alone = [0.05 * (-1) ** at for at in range(60)]
    stretched = sorted(alone)
    assert interval(stretched, 0.999, 400, 1).spread > 1.5 * interval(alone, 0.999, 400, 1).spread


def test_the_interval_covers_the_truth_as_often_as_it_says():
    import random

    missed, source = 0, random.Random(4)
    for seed in range(600):
        logs = [source.gauss(0, 0.05) for _ in range(20)]
        missed += interval(logs, 0.95, 200, seed).low > 1
    assert missed <= 600 * 0.085


def test_the_spread_counts_both_directions():
    assert Interval(1.0, 0.8, 1.1).spread == pytest.approx(0.25)
    assert Interval(1.0, 0.95, 1.1).spread == pytest.approx(0.1)


def times(candidate, control, blocks=40, jitter=0.001):
    def arm(ratio):
        return [
            (1 / ratio * (1 + jitter * (at % 3)), 1 / ratio * (1 + jitter * (at % 2)))
            for at in range(blocks)
        ]

    return {"original": arm(1.0), "candidate": arm(candidate), "control": arm(control)}


def test_what_disturbs_one_of_two_runs_or_a_fifth_of_the_blocks_does_not_count():
    quiet = times(1.1, 1.0)
    loud = {which: list(all_) for which, all_ in times(1.1, 1.0).items()}
    for at in range(40):  # each arm in turn, in one of its two runs
        which = ARMS[at % 3]
        first, second = loud[which][at]
        loud[which][at] = (first * 3, second) if at % 2 else (first, second * 3)
    for at in range(0, 40, 6):  # and in some blocks all runs of the candidate
        loud["candidate"][at] = (0.005, 0.005)
    before, after = judge_times(quiet, MeasurePlan()), judge_times(loud, MeasurePlan())
    assert before.verdict == after.verdict == "faster"
    assert after.candidate.ratio == pytest.approx(before.candidate.ratio, rel=0.005)
    assert after.noise_floor == pytest.approx(before.noise_floor, abs=0.005)


@pytest.mark.parametrize(
    ("candidate", "control", "verdict"),
    [
        (1.5, 1.0, "faster"),
        (1.05, 1.0, "faster"),
        (1.01, 1.0, "same"),
        (1 / 1.04, 1.0, "same"),
        (1 / 1.08, 1.0, "slower"),
        (1.05, 1.08, "undecided"),
        (1.05, 1 / 1.08, "undecided"),
        (1 / 1.04, 1.08, "same"),
        (1 / 1.08, 1.08, "slower"),
        (1.5, 1.08, "faster"),
    ],
)
def test_faster_must_pass_the_threshold_and_the_noise_of_this_machine(candidate, control, verdict):
    measured = judge_times(times(candidate, control), MeasurePlan())
    assert measured.verdict == verdict
    assert measured.noise_floor == measured.control.spread
    assert measured.candidate.ratio == pytest.approx(candidate, rel=0.02)


def scattered(ratio):
    """Eleven blocks in which the candidate is alternately faster and slower than `ratio`."""
    found = times(1.0, 1.0, blocks=11, jitter=0.0)
    return found | {"candidate": [((1 + 0.02 * (-1) ** at) / ratio,) * 2 for at in range(11)]}


def test_the_same_needs_less_to_be_known_than_faster_does():
    measured = judge_times(scattered(1.0), MeasurePlan())
    assert measured.candidate.spread > 0.02  # not enough for the confidence that `faster` needs
    assert measured.verdict == "same"
    assert judge_times(scattered(1.0), MeasurePlan(sure_same=0.9999)).verdict == "undecided"
    assert judge_times(scattered(1.02), MeasurePlan()).verdict == "undecided"
    loud = scattered(1.0)
    loud["control"] = [(1 + 0.1 * (at % 3),) * 2 for at in range(11)]
    assert judge_times(loud, MeasurePlan()).verdict == "undecided"


def test_at_the_end_what_lies_within_the_noise_is_the_same():
    assert judge_times(times(1.03, 1.04, blocks=40), MeasurePlan()).verdict == "undecided"
    assert judge_times(times(1.03, 1.04, blocks=40), MeasurePlan(most=40)).verdict == "same"


def test_a_loud_machine_does_not_call_everything_the_same():
    assert judge_times(times(1.06, 1.2, blocks=40), MeasurePlan(most=40)).verdict == "undecided"


@pytest.mark.parametrize("control", [1.0, 1.08, 1.3, 1 / 1.3])
@pytest.mark.parametrize("ratio", [0.02, 0.5, 0.8, 0.9])
def test_at_the_end_an_interval_wholly_below_one_is_slower_however_loud_the_machine(ratio, control):
    measured = judge_times(times(ratio, control, blocks=40), MeasurePlan(most=40))
    assert measured.candidate.high < 1
    assert measured.verdict == "slower"


@given(
    ratio=st.floats(0.3, 3.0),
    control=st.floats(0.7, 1.4),
    noise=st.lists(st.floats(0.8, 1.25), min_size=6, max_size=30),
)
@settings(max_examples=60, deadline=None)
def test_at_the_end_no_interval_below_one_is_undecided_and_none_with_one_in_it_is_decided(
    ratio, control, noise
):
    taken = times(ratio, control, blocks=len(noise))
    taken["candidate"] = [(noise[at] / ratio,) * 2 for at in range(len(noise))]
    measured = judge_times(taken, MeasurePlan(first=6, most=len(noise)))
    if measured.candidate.high < 1:
        assert measured.verdict in {"slower", "same"}
    if measured.verdict == "faster":
        assert measured.candidate.low > 1.02
    if measured.verdict == "slower":
        assert measured.candidate.high < 1


async def test_a_candidate_that_is_many_times_slower_is_known_after_a_block():
    machine = Machine("all", 3, speedup=1 / 41)
    measured = await measure(machine.run_once)
    assert (measured.verdict, measured.blocks) == ("slower", 1)
    assert measured.candidate.low <= measured.candidate.ratio <= measured.candidate.high < 1 / 8


def test_only_what_is_slower_in_every_run_is_hopeless():
    def of(candidate, original=((1.0, 1.1),) * 2):
        return is_hopeless(
            {"original": list(original), "control": list(original), "candidate": list(candidate)}
        )

    assert of([(41.0, 40.0), (45.0, 44.0)])
    assert of([(2.3, 2.4), (2.3, 2.5)])
    assert not of([(2.3, 2.4), (2.3, 2.1)])
    assert not of([(41.0, 40.0)], [(1.0, 9.0)])
    assert of([(41.0, 40.0)], [(1.0, 1.1)])
    assert not of([(4.0, 4.0)], [(1.0, 1.1)])  # a single block needs a larger ratio
    assert not of([(41.0,)], [(1.0,)])  # and one run is never enough


# --- noisy machines


def test_of_two_hundred_runs_of_the_same_code_at_most_two_are_faster():
    found = verdicts(200, 1.0)
    print(f"200 A/A runs: {dict(found)}")  # noqa: T201 - the numbers are what it is run for
    assert found["faster"] <= 2
    assert found["slower"] <= 2
    assert found["same"] >= 100


def test_a_tenth_off_a_millisecond_is_found_in_ninety_of_a_hundred():
    found = verdicts(100, 1.1)
    print(f"100 runs with a planted 10%: {dict(found)}")  # noqa: T201 - the numbers are what it is run for
    assert found["faster"] >= 90
    assert found["slower"] == 0


@pytest.mark.parametrize("noises", [NOISES, (SHARED,)])
def test_with_many_laps_a_block_the_same_holds_on_a_cpu_that_others_use(noises):
    alike = verdicts(60, 1.0, noises=noises, laps=12)
    assert alike["faster"] <= 1
    assert alike["slower"] <= 1
    assert alike["same"] >= 48
    planted = verdicts(40, 1.1, noises=noises, laps=12)
    assert planted["faster"] >= 38
    assert planted["slower"] == 0


def test_slower_is_found_as_well():
    assert verdicts(12, 1 / 1.1)["slower"] >= 11


CHILD = "import sys\nsys.stdin.readline()\nsum(i * i for i in range({count}))\nprint(1, flush=True)"


async def seconds_of(count):
    """A fresh process, timed by its parent from the moment that it is ready."""
    code = CHILD.format(count=count)
    child = await asyncio.create_subprocess_exec(sys.executable, "-Sc", code, stdin=-1, stdout=-1)
    child.stdin.write(b"go\n")
    start = time.perf_counter()
    await child.stdout.readline()
    took = time.perf_counter() - start
    await child.communicate()
    return took


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "wanted"), [(400_000, {"same", "undecided"}), (200_000, {"faster"})]
)
async def test_real_processes(count, wanted):
    async def run_once(turn):
        return await seconds_of(count if turn.which == "candidate" else 400_000)

    measured = await measure(run_once, plan=MeasurePlan(most=40))
    noise = f"noise floor {measured.noise_floor:.3f}, {measured.blocks} blocks"
    print(measured.verdict, measured.candidate, noise)  # noqa: T201 - the numbers are what it is run for
    assert measured.verdict in wanted
