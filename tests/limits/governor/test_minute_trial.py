"""When a minute is tried larger, and by how much."""

import pytest

from abreast.limits.governor.minute_trial import MinuteTrial


def test_each_accepted_call_beyond_what_was_accepted_lets_twice_as_much_more_go():
    trial = MinuteTrial()
    trial.begin(0.01)
    amount, added = 1_000.0, []
    for now in range(4):
        larger = trial.enlarge(amount, least=1.0)
        added.append((larger - amount) / amount)
        trial.send(amount, now)
        assert not trial.shows_more(now)  # so much was accepted before
        trial.send(larger, now + 0.5)
        assert not trial.shows_more(now)
        assert trial.shows_more(now + 0.5)
        amount = larger
    assert added == pytest.approx([0.01, 0.02, 0.04, 0.08])


def test_at_least_one_request_more_is_tried_and_a_rejection_ends_the_trial():
    trial = MinuteTrial()
    trial.begin(0.01)
    assert trial.enlarge(10.0, least=1.0) == pytest.approx(11.0)
    trial.send(10.5, 1.0)
    trial.reject()
    assert not trial.shows_more(1.0)


def test_a_trial_is_due_after_one_minute_then_three_then_nine():
    trial = MinuteTrial()
    for minutes in (1, 3, 9, 9):
        assert [trial.is_due() for _ in range(minutes)] == [False] * (minutes - 1) + [True]
        trial.reject()
        trial.wait_longer()
    trial.wait_least()
    assert trial.is_due()
