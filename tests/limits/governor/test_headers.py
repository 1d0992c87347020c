"""What headers say of a rate: how fast a bucket fills, how old they are, and how much too large."""

import pytest

from abreast.limits.governor.rate_estimate import HeaderFacts, RateEstimate


def answer(estimate, serial, now, header, cost=1.0):
    """A call is sent, and answered with that header at once."""
    estimate.send(serial, cost, now)
    estimate.settle(serial, cost)
    estimate.update_from_header(header, serial, now)


def test_the_first_reset_shows_the_rate_of_a_bucket_though_its_limit_is_too_large():
    estimate = RateEstimate()
    answer(estimate, 1, 0.0, HeaderFacts(60, 6, 4.0))  # 15 a minute
    assert estimate.per_minute == pytest.approx(15)


def test_resets_show_that_others_use_a_part_of_a_bucket_and_that_they_have_gone():
    estimate, now, full_at, rate = RateEstimate(), 0.0, 0.0, 1.0
    for serial in range(1, 300):
        rate = 0.5 if 100 <= serial < 200 else 1.0
        full_at = max(now, full_at) + 1 / rate
        reset = full_at - now
        answer(estimate, serial, now, HeaderFacts(60, int(60 - reset * rate), reset))
        now += 0.9
        if serial in {99, 299}:
            assert estimate.per_minute == pytest.approx(60)
        if serial == 199:
            assert estimate.per_minute == pytest.approx(30, rel=0.02)


def test_a_bucket_that_was_full_between_two_headers_is_not_thought_to_be_slow():
    estimate = RateEstimate()
    answer(estimate, 1, 0.0, HeaderFacts(60, 1, 1.0))
    for serial in range(2, 30):
        estimate.send(serial, 1.0, 10.0 * serial)  # answered later
    answer(estimate, 30, 300.0, HeaderFacts(60, 1, 1.0))
    assert estimate.per_minute == pytest.approx(60)


def test_a_header_that_does_not_change_with_calls_is_old_and_counts_for_the_call_it_is_about():
    estimate, lag = RateEstimate(), 2.0
    facts = []
    for serial in range(1, 60):
        now = 0.25 * (serial - 1)
        facts.append((now, HeaderFacts(200, 200 - serial, 50 - now)))
        shown = [each for at, each in facts if at <= now - lag] or [facts[0][1]]
        answer(estimate, serial, now, shown[-1])
    assert not estimate.copy.is_bucket
    assert estimate.copy.sent.boundary == pytest.approx(50, abs=0.5)
    assert estimate.copy.left_after(59, now) == pytest.approx(200 - 59, abs=1)


def test_an_old_header_says_nothing_of_a_rejected_call():
    estimate = RateEstimate()
    answer(estimate, 1, 0.0, HeaderFacts(20, 19, 50.0))
    for serial in range(2, 30):  # the facts of the first call, for four seconds
        now = 0.25 * (serial - 1)
        about = max(1, serial - 16)
        header = HeaderFacts(20, max(0, 20 - about), 50.0 - 0.25 * (about - 1))
        if serial <= 20:
            answer(estimate, serial, now, header)
    estimate.send(21, 1.0, now)
    estimate.reject(next(estimate.copy.sent.latest(21)), now, 43.0, HeaderFacts(20, 10, 47.0))
    assert estimate.trusted


def test_headers_that_fall_twice_as_fast_as_calls_are_sent_are_twice_too_large():
    estimate = RateEstimate()
    for serial in range(1, 20):
        answer(
            estimate, serial, 0.1 * serial, HeaderFacts(200, 200 - 2 * serial, 50 - 0.1 * serial)
        )
    assert estimate.per_minute == pytest.approx(100)
    assert estimate.copy.left_after(19, 1.9) == pytest.approx(100 - 19, abs=1)


def test_others_that_begin_to_use_a_rate_do_not_make_its_headers_too_large():
    estimate = RateEstimate()
    for serial in range(1, 40):
        others = 50 if serial >= 20 else 0
        left = 200 - serial - others
        answer(estimate, serial, 0.1 * serial, HeaderFacts(200, left, 50 - 0.1 * serial))
    assert estimate.limit == 200
    assert estimate.per_minute == pytest.approx(150, abs=1)


def test_without_a_reset_nothing_that_comes_back_is_a_minute():
    estimate = RateEstimate()
    for serial in range(1, 50):
        answer(estimate, serial, 0.25 * serial, HeaderFacts(100, 100 - serial, 0.0))
    assert not estimate.copy.is_bucket


def test_without_a_reset_all_that_is_back_at_once_is_a_new_fixed_minute():
    estimate = RateEstimate()
    for serial in range(1, 51):
        answer(estimate, serial, 0.5 * serial, HeaderFacts(100, 100 - serial, 0.0))
    for serial in range(51, 61):
        answer(estimate, serial, 0.5 * serial, HeaderFacts(100, 150 - serial, 0.0))
    assert estimate.copy.sent.boundary == pytest.approx(25.5)
    assert estimate.copy.amount == 100
