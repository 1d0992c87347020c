"""When a faster rate is tried: the later, the surer the rate, and sooner if it has fallen."""

from math import inf

from abreast.limits.governor.rate_trial import RateTrial
from abreast.limits.governor.rejection_fit import Explanation


def calls_until_trial(trial, growth=0.2):
    """How many calls wait, until they go so much faster."""
    calls = 0
    trial.begin_anew()
    while trial.growth < growth:
        trial.send()
        calls += 1
    return calls


def confirmed(trial, rate, spread, times, before=None):
    """After so many rejections that allow a rate up to `spread` lower or higher."""
    for _ in range(times):
        found = Explanation(2, rate * (1 - spread), rate * (1 + spread))
        trial.confirm(rate, before or rate, found, 1_000)
    return trial


def test_trials_become_rarer_with_rejections_that_agree_and_with_what_is_known():
    first = calls_until_trial(RateTrial())
    vague, sure = (calls_until_trial(confirmed(RateTrial(), 1.0, each, 1)) for each in (0.2, 0.02))
    often = calls_until_trial(confirmed(RateTrial(), 1.0, 0.02, 4))
    assert first < vague < sure <= often


def test_a_rate_of_which_little_is_known_is_tried_soon_whatever_agrees():
    trial = confirmed(RateTrial(), 1.0, 0.25, 9)
    assert calls_until_trial(trial) < 40


def test_a_rate_that_has_fallen_is_tried_sooner_until_it_has_risen_again():
    steady, fallen = confirmed(RateTrial(), 1.0, 0.01, 4), confirmed(RateTrial(), 1.0, 0.01, 4)
    fallen = confirmed(fallen, 0.5, 0.01, 1, before=1.0)
    assert calls_until_trial(fallen) < calls_until_trial(steady) / 3
    risen = confirmed(fallen, 1.0, 0.01, 4)
    assert calls_until_trial(risen) > calls_until_trial(confirmed(RateTrial(), 1.0, 0.01, 2)) / 2


def test_after_nothing_is_known_any_more_a_trial_comes_after_what_was_saved_up():
    trial = confirmed(RateTrial(), 1.0, 0.01, 4)
    trial.hurry(saved=100.0)
    assert calls_until_trial(trial) > 12
    trial.hurry(saved=0.0)
    assert calls_until_trial(trial) < 8


def test_a_limit_that_changes_leaves_nothing_that_explains_rejections():
    trial = RateTrial()
    trial.highest = 2.0
    trial.scale(0.5)
    assert trial.highest == inf
