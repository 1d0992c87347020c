"""Chaos, in short: `make chaos` has hundreds of rounds of every job, fault and store."""

import random
import shutil

import pytest

from benchmarks.chaos.__main__ import describe, explain, open_arena, play_for, play_mutant
from benchmarks.chaos.mutants import MUTANTS

ROUNDS = [
    ("commands", "torn write", 1),
    ("commands", "store full", 2),
    ("prompts", "storm and kill", 3),
    ("budget", "kill driver", 4),
    ("plan", "kill session", 5),
]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.timeout(600)
def test_a_few_rounds_lose_change_and_leave_nothing():
    with open_arena() as arena:
        for job, fault, seed in ROUNDS:
            report = arena.play(job, fault, "sqlite", seed)
            assert not report.counts, f"{describe(report)}\n{explain(report)}"


@pytest.mark.timeout(600)
def test_a_broken_promise_is_noticed():
    *_, last = play_mutant("recorded outcomes are not looked up", 10, seed=5)
    assert last.counts.recorded_repeated > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_minutes_of_every_job_and_fault_lose_change_and_leave_nothing():
    seed = random.SystemRandom().randrange(1 << 32)
    reports = list(play_for(600, seed))
    for report in reports:
        assert not report.counts, f"seed {seed}: {describe(report)}\n{explain(report)}"
    assert sum(report.hit for report in reports) > len(reports) / 2


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_broken_promise_is_noticed(name):
    *_, last = play_mutant(name, 10, seed=5)
    assert getattr(last.counts, MUTANTS[name].count) > 0
