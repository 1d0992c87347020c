"""Which ways of counting explain rejections, and by which limits."""

from functools import partial
from math import inf

import pytest

from abreast.limits.governor.rejection_fit import (
    RejectedCall,
    buckets,
    explain_bucket,
    explain_minutes,
    spans_of,
)
from abreast.limits.governor.rejection_record import RejectionRecord
from abreast.limits.governor.sent_calls import SentCall, leaves_at

JITTER = 0.05


def bucket_of(rate, capacity, times):
    """The calls that a bucket accepts of those sent then, and the others."""
    level, at = capacity, times[0]
    accepted, rejected = [], []
    for serial, now in enumerate(times):
        level, at = min(capacity, level + rate * (now - at)), now
        if level >= 1.0:
            level -= 1.0
            accepted.append(SentCall(serial, now, 1.0))
        else:
            rejected.append(RejectedCall(serial, now + JITTER, 1.0, None))
    return accepted, rejected


def explained(calls, rejections, capacity):
    return explain_bucket(
        spans_of(calls, rejections), capacity, minute=60.0, jitter=JITTER, tolerance=0.02
    )


def test_the_rate_of_a_bucket_is_between_its_bounds():
    times = [*(0.2 * each for each in range(60)), *(20 + 0.5 * each for each in range(60))]
    calls, rejections = bucket_of(1.3, 8.0, times)
    found = explained(calls, rejections[-6:], 8.0)
    assert found.rejections == 6
    assert found.low <= 1.3 * 1.02
    assert found.high >= 1.3 / 1.02
    assert found.high < 1.2 * found.low


def test_the_first_calls_tell_of_each_rate_how_much_a_bucket_holds():
    calls, rejections = bucket_of(1.0, 10.0, [0.1 * each for each in range(30)])
    (first, *_) = spans_of(calls, rejections[:1])
    holds = [capacity for rate, capacity in buckets(first, 60.0) if 0.9 < rate < 1.1]
    assert holds == [pytest.approx(10.0, abs=1.0)]


def test_a_minute_that_slides_explains_what_no_bucket_does():
    calls = [SentCall(each, 0.1 * each, 1.0) for each in range(30)]
    rejections = [RejectedCall(100 + each, 3.0 + 10 * each, 1.0, None) for each in range(4)]
    minutes = explain_minutes(calls, rejections, partial(leaves_at, None, 60.0), 1.5, 0.02)
    assert minutes.rejections == 4
    assert (minutes.low, minutes.high) == (30.0, 31.0)
    first, *_ = spans_of(calls, rejections)
    assert all(
        explained(calls, rejections, capacity).rejections < 4
        for _, capacity in buckets(first, 60.0)
    )


def test_a_minute_that_has_just_begun_explains_no_rejection():
    rejections = [RejectedCall(1, 100.0, 1.0, None)]
    found = explain_minutes([], rejections, partial(leaves_at, 90.0, 60.0), 1.5, 0.02)
    assert (found.rejections, found.high) == (0, inf)


def test_very_many_calls_between_two_rejections_still_bound_the_rate():
    times = [*(0.2 * each for each in range(60)), *(20 + 0.74 * each for each in range(1300))]
    calls, rejections = bucket_of(1.3, 8.0, times)
    found = explained(calls, [rejections[0], rejections[-1]], 8.0)
    assert rejections[-1].serial - rejections[0].serial > 600
    assert found.rejections == 2
    assert found.low >= 1.3 / 1.05
    assert found.high <= 1.3 * 1.05


def test_of_rejections_in_a_row_the_first_and_the_last_are_remembered():
    record = RejectionRecord(tolerance=0.02)
    for serial in range(5):
        record.add(RejectedCall(serial, float(serial), 1.0, None), again=serial > 1)
    record.add(RejectedCall(9, 9.0, 1.0, None))
    assert record.calls_since(2) == 9 - 4
    assert record.calls_since(3) == 9


def test_what_a_rejected_call_would_have_taken_replaces_what_was_thought():
    record = RejectionRecord(tolerance=0.02)
    record.add(RejectedCall(7, 7.0, 1.0, None))
    assert not record.settle(6, 3.0)
    assert record.settle(7, 3.0)
    assert record.last.cost == 3.0


def test_a_minute_of_four_calls_does_not_explain_that_the_fourth_was_rejected():
    calls = [SentCall(each, 1.0 * each, 1.0) for each in range(4)]
    rejections = [RejectedCall(9, 62.5, 1.0, None)]  # beside one call of the minute before
    calls.extend([SentCall(5, 60.5, 1.0), SentCall(6, 61.5, 1.0)])
    found = explain_minutes(calls, rejections, partial(leaves_at, None, 60.0), 1.5, 0.02)
    assert found.rejections == 0
