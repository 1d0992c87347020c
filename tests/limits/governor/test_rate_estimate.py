"""One rate: how the server counts, what headers and rejections teach, and what is doubted."""

from itertools import pairwise

import pytest

from abreast.limits.governor.counter_copy import CounterCopy
from abreast.limits.governor.rate_estimate import HeaderFacts, RateEstimate
from abreast.limits.governor.sent_calls import SentCall


def send(estimate, serial, now, cost=1.0):
    estimate.send(serial, cost, now)
    return SentCall(serial, now, cost)


def started(header, *, even=True, cost=1.0):
    """An estimate that has seen the header of its first call."""
    estimate = RateEstimate(even=even)
    send(estimate, 1, 0.0, cost)
    estimate.settle(1, cost)
    estimate.update_from_header(header, 1, 0.0)
    return estimate


def send_all(estimate, serial, now, until, cost=1.0):
    """Send as soon as it may, until a time; the times."""
    times = []
    while now < until:
        when = estimate.refusal(cost, now)
        if when is None:
            send(estimate, serial, now, cost)
            serial += 1
            times.append(now)
        else:
            now = max(when, now + 1e-6)
    return times


def test_a_bucket_is_used_up_and_then_paced():
    estimate = started(HeaderFacts(60, 9, 1.0))
    times = send_all(estimate, 2, 0.1, 60.0)
    assert estimate.copy.is_bucket
    assert estimate.copy.capacity == pytest.approx(10.0)
    assert len(times) == pytest.approx(9 + 60, abs=3)
    assert max(b - a for a, b in pairwise(times[30:])) < 1.2


def test_a_bucket_of_one_leaves_time_for_calls_that_arrive_early():
    estimate = started(HeaderFacts(60, 0, 1.0))
    times = send_all(estimate, 2, 0.0, 20.0)
    assert min(b - a for a, b in pairwise(times)) > 1.04


def test_a_reset_too_long_for_a_bucket_is_the_end_of_a_fixed_minute():
    estimate = started(HeaderFacts(60, 59, 20.0))
    assert not estimate.copy.is_bucket
    assert estimate.copy.sent.boundary == pytest.approx(20.0)
    times = send_all(estimate, 2, 0.1, 79.0)
    assert len([when for when in times if when < 20]) == 59
    assert len([when for when in times if when >= 20]) == 60


def test_a_reset_of_a_whole_minute_is_a_minute_that_slides():
    estimate = started(HeaderFacts(60, 59, 60.0))
    assert not estimate.copy.is_bucket
    assert estimate.copy.sent.boundary is None
    assert len(send_all(estimate, 2, 0.1, 59.0)) == 59
    assert estimate.refusal(1.0, 59.5) == pytest.approx(60.05, abs=0.01)


def test_a_fixed_minute_that_began_with_the_run_is_recognised_later():
    estimate = started(HeaderFacts(60, 59, 60.0))
    send(estimate, 2, 5.0)
    estimate.update_from_header(HeaderFacts(60, 58, 55.0), 2, 5.0)
    assert estimate.copy.sent.boundary == pytest.approx(60.0)
    send(estimate, 3, 6.0)
    estimate.update_from_header(HeaderFacts(60, 57, 53.9), 3, 6.0)  # a little earlier
    assert estimate.copy.sent.boundary == pytest.approx(59.9)
    send(estimate, 4, 7.0)
    estimate.update_from_header(HeaderFacts(60, 56, 60.0), 4, 7.0)  # it may be an old one
    assert estimate.copy.sent.boundary == pytest.approx(59.9)
    send(estimate, 5, 27.0)
    estimate.update_from_header(HeaderFacts(60, 55, 60.0), 5, 27.0)  # it slides after all
    assert estimate.copy.sent.boundary is None
    send(estimate, 6, 28.0)
    estimate.update_from_header(HeaderFacts(60, 55, 0.0), 6, 28.0)  # that says nothing
    assert estimate.copy.sent.boundary is None


def test_an_old_header_does_not_add_to_what_a_minute_allows():
    estimate = started(HeaderFacts(60, 59, 60.0))
    for serial in range(2, 40):
        send(estimate, serial, 1.0)
    estimate.update_from_header(HeaderFacts(60, 59, 60.0), 39, 1.0)  # as of the first call
    assert estimate.copy.amount == 60
    assert len(send_all(estimate, 40, 1.1, 59.0)) == 21


def test_an_answer_to_an_early_call_does_not_bring_back_a_limit_that_has_fallen():
    estimate = started(HeaderFacts(60, 9, 1.0))
    calls = [send(estimate, serial, float(serial)) for serial in range(2, 8)]
    estimate.update_limit(30, 7)
    assert estimate.reject(calls[-1], 8.0, 1.0, HeaderFacts(30, 0, 20.0))
    estimate.update_from_header(HeaderFacts(60, 5, 5.0), 4, 4.0)
    assert estimate.per_minute == 30
    assert estimate.limit == 30


@pytest.mark.parametrize(("took", "is_believed"), [(1_900.0, False), (2_500.0, True)])
def test_a_header_is_believed_again_if_the_rejected_call_was_larger_than_thought(took, is_believed):
    estimate = started(HeaderFacts(6_000, 5_900, 1.0), even=False, cost=100.0)
    for serial in range(2, 40):
        send(estimate, serial, 0.1, 100.0)
    call = send(estimate, 40, 1.0, 100.0)
    estimate.reject(call, 1.0, 1.0, HeaderFacts(6_000, 2_000, 40.0))
    assert not estimate.trusted
    send(estimate, 41, 5.0, 100.0)
    estimate.settle_rejected(40, took)  # 2,000 were left
    assert estimate.trusted == is_believed


def test_a_doubted_limit_that_changes_changes_what_was_found():
    estimate = started(HeaderFacts(60, 9, 1.0))
    call = send(estimate, 2, 1.0)
    estimate.reject(call, 1.0, 1.0, HeaderFacts(60, 30, 1.0))
    assert not estimate.trusted
    found = estimate.per_minute
    send(estimate, 3, 5.0)
    estimate.update_from_header(HeaderFacts(30, 9, 1.0), 3, 5.0)
    assert estimate.per_minute == pytest.approx(found / 2)


def test_a_call_that_is_rejected_again_is_given_more_room():
    waits = []
    for rejections in (1, 2, 3):
        estimate = started(HeaderFacts(6_000, 900, 1.0), even=False, cost=100.0)
        serial = 2
        for _ in range(rejections):
            call = send(estimate, serial, 1.0, 100.0)
            estimate.reject(call, 1.0, 1.0, HeaderFacts(6_000, 0, 10.0))
            serial += 1
        now = estimate.hold
        waits.append(estimate.refusal(100.0, now) - 1.0)
    assert waits[0] < waits[1] < waits[2]


def test_a_reset_too_short_for_a_bucket_is_the_end_of_a_fixed_minute():
    estimate = started(HeaderFacts(4, 3, 20.0))  # of a bucket, it may be
    assert estimate.copy.is_bucket
    send(estimate, 2, 1.0)
    send(estimate, 3, 2.0)
    send(estimate, 4, 12.0)
    estimate.update_from_header(HeaderFacts(4, 0, 8.0), 4, 12.0)
    assert estimate.copy.is_fixed
    assert estimate.copy.sent.boundary == pytest.approx(20.0)


def test_a_rejection_in_a_new_minute_means_that_it_has_not_begun():
    estimate = started(HeaderFacts(60, 59, 20.0))
    call = send(estimate, 2, 20.5)
    estimate.reject(call, 20.6, 3.0, HeaderFacts(60, 0, 3.0))
    assert estimate.copy.sent.boundary == pytest.approx(23.5)
    assert estimate.copy.amount >= 59


def test_a_limit_that_changes_changes_the_rate():
    estimate = started(HeaderFacts(600, 599, 0.1))
    assert estimate.per_minute == pytest.approx(600)
    send(estimate, 2, 5.0)
    estimate.update_from_header(HeaderFacts(150, 149, 0.4), 2, 5.0)
    assert estimate.per_minute == pytest.approx(150)
    assert estimate.copy.capacity == pytest.approx(150)
    estimate.update_from_header(HeaderFacts(600, 599, 0.1), 1, 0.0)  # an older answer
    assert estimate.per_minute == pytest.approx(150)


def test_the_amount_of_a_minute_changes_with_the_limit():
    estimate = started(HeaderFacts(60, 59, 20.0))
    estimate.update_limit(120, 99)
    assert estimate.per_minute == pytest.approx(120)


def test_a_neighbours_share_is_measured_by_what_comes_back():
    estimate = started(HeaderFacts(600, 299, 0.2))
    serial, left = 1, 299.0
    for tick in range(1, 40):
        now = float(tick)
        for _ in range(12):
            serial += 1
            send(estimate, serial, now)
        left += 5 - 12  # half of what the limit says
        estimate.update_from_header(HeaderFacts(600, left, (300 - left) / 5), serial, now)
    assert estimate.per_minute == pytest.approx(300, rel=0.1)


def test_headers_with_enough_left_for_a_rejected_call_are_not_believed_again():
    estimate = started(HeaderFacts(60, 59, 1.0))
    call = send(estimate, 2, 1.0)
    estimate.reject(call, 1.1, 1.0, HeaderFacts(60, 30, 30.0))
    assert not estimate.trusted
    assert estimate.rate is not None  # they are old, but the limit may be right
    send(estimate, 3, 3.0)
    estimate.update_from_header(HeaderFacts(60, 50, 10.0), 3, 3.0)
    assert estimate.copy.anchor_serial == 2


def test_a_rejection_that_headers_did_not_predict_leaves_a_reserve():
    estimate = started(HeaderFacts(600, 599, 0.1))
    call = send(estimate, 2, 1.0)
    assert estimate.reject(call, 1.1, 2.0, HeaderFacts(600, 0, 60.0))
    assert estimate.refusal(1.0, 2.0) == pytest.approx(3.1)
    assert estimate.copy.left_after(2, 1.0) < 1.0
    assert not estimate.reject(call, 1.2, 2.0, None)  # no news


def test_without_headers_the_rate_is_what_was_accepted_between_two_rejections():
    estimate, serial, now = RateEstimate(), 0, 0.0
    for _ in range(30):
        serial, now = serial + 1, now + 0.1
        send(estimate, serial, now)
    call = send(estimate, serial + 1, now)
    estimate.reject(call, now, 1.0)
    serial, empty = serial + 1, now
    for _ in range(40):
        serial, now = serial + 1, now + 0.5
        send(estimate, serial, now)
        estimate.passed(now)
    call = send(estimate, serial + 1, now)
    estimate.reject(call, now, 1.0)
    assert estimate.per_minute == pytest.approx(60 * 40 / (now - empty), rel=0.1)


def rejected_at(estimate, serial, now, wait):
    estimate.reject(send(estimate, serial, now), now, wait)


def test_without_headers_a_wait_until_the_oldest_call_is_a_minute_old_is_a_sliding_minute():
    estimate = RateEstimate()
    for serial in range(1, 21):
        send(estimate, serial, serial * 0.1)
    rejected_at(estimate, 21, 2.2, 58.0)
    assert not estimate.copy.is_bucket
    assert estimate.copy.sent.boundary is None
    assert estimate.per_minute == pytest.approx(20)


def test_without_headers_a_large_minute_is_found_though_its_calls_are_counted_together():
    estimate = RateEstimate()
    for serial in range(1, 5001):
        send(estimate, serial, serial * 0.002)
    rejected_at(estimate, 5001, 10.2, 50.0)
    for serial in range(5002, 10002):
        send(estimate, serial, 70.5 + (serial - 5002) * 0.002)
        estimate.passed(70.5)
    rejected_at(estimate, 10002, 80.6, 50.0)
    estimate.refusal(1.0, 131.0)
    assert not estimate.copy.is_bucket
    assert estimate.per_minute == pytest.approx(5000, rel=0.02)


def test_without_headers_a_wait_too_long_for_a_bucket_ends_a_fixed_minute():
    estimate = RateEstimate()
    for serial in range(1, 21):
        send(estimate, serial, serial * 0.1)
    rejected_at(estimate, 21, 2.2, 30.0)
    assert estimate.copy.is_fixed
    for serial in range(22, 42):
        send(estimate, serial, 33.0 + (serial - 22) * 0.1)
        estimate.passed(33.0)
    rejected_at(estimate, 42, 62.2, 30.0)
    estimate.refusal(1.0, 92.0)
    assert estimate.copy.is_fixed
    assert estimate.copy.sent.boundary % 60 == pytest.approx(32.2, abs=0.1)
    assert estimate.per_minute == pytest.approx(20)


def test_a_call_rejected_as_a_fixed_minute_begins_does_not_mean_that_it_allows_nothing():
    estimate = RateEstimate()
    for serial in range(1, 21):
        send(estimate, serial, serial * 0.1)
    rejected_at(estimate, 21, 2.2, 30.0)
    for serial in range(22, 42):
        send(estimate, serial, 33.0 + (serial - 22) * 0.1)
        estimate.passed(33.0)
    rejected_at(estimate, 42, 92.21, 60.0)  # by the waits a minute begins at 92.2
    assert estimate.copy.is_fixed
    assert estimate.per_minute >= 10


def test_without_headers_and_waits_a_long_time_with_nothing_back_is_a_minute():
    estimate = RateEstimate()
    for serial in range(1, 21):
        send(estimate, serial, serial * 0.1)
    for serial, now in ((21, 2.2), (22, 4.0), (23, 30.0)):
        rejected_at(estimate, serial, now, None)
    estimate.refusal(1.0, 50.0)
    assert not estimate.copy.is_bucket
    assert estimate.per_minute == pytest.approx(20)
    rejected_at(estimate, 24, 50.0, None)
    estimate.refusal(1.0, 60.0)
    assert estimate.per_minute == pytest.approx(20)


def test_a_minute_found_by_rejections_is_tried_larger_once_it_is_used_up():
    estimate = RateEstimate()
    for serial in range(1, 21):
        send(estimate, serial, serial * 0.1)
    rejected_at(estimate, 21, 2.2, 58.0)
    estimate.refusal(1.0, 70.0)
    assert estimate.per_minute == pytest.approx(20)  # nothing says that it is too little
    send_all(estimate, 22, 70.0, 260.0)
    assert estimate.per_minute > 21


def test_a_minute_that_proves_wrong_is_given_up_for_a_bucket():
    estimate = RateEstimate()  # of ten, filled with one a second
    for serial in range(1, 12):
        send(estimate, serial, serial * 0.1)
    rejected_at(estimate, 12, 1.2, 30.0)
    assert estimate.copy.is_fixed
    for serial in range(13, 23):
        send(estimate, serial, 31.3 + (serial - 13) * 0.01)
        estimate.passed(31.3)
    rejected_at(estimate, 23, 31.5, 30.0)
    estimate.refusal(1.0, 62.0)
    assert estimate.copy.is_bucket
    assert estimate.copy.capacity == pytest.approx(10, abs=3)


def test_a_bucket_that_is_never_full_has_the_rate_at_which_calls_were_rejected():
    estimate, now, level, serial = RateEstimate(), 0.0, 1.0, 0
    for _ in range(300):  # a bucket of one, filled with one in two seconds
        when = estimate.refusal(1.0, now)
        start, now = now, now if when is None else when
        level = min(1.0, level + (now - start) / 2)
        if when is not None:
            continue
        serial += 1
        call = send(estimate, serial, now)
        if level >= 1.0:
            level -= 1.0
            estimate.passed(now)
        else:
            estimate.reject(call, now, 1.0)
    assert estimate.copy.is_bucket
    assert estimate.per_minute == pytest.approx(30, rel=0.05)


def run_bucket(estimate, limits, minutes, now=0.0):
    """Rejections and accepted calls by a bucket whose limit per minute changes after each time."""
    level, serial, rejected, accepted = limits[0], 0, 0, 0
    for limit in limits:
        until, level = now + 60 * minutes, min(level, limit)
        while now < until:
            when = estimate.refusal(1.0, now)
            later = now if when is None else max(when, now + 1e-6)
            level, now = min(limit, level + (later - now) * limit / 60), later
            if when is not None:
                continue
            serial += 1
            call = send(estimate, serial, now)
            if level >= 1.0:
                level, accepted = level - 1.0, accepted + 1
                estimate.passed(now)
            else:
                rejected += 1
                estimate.reject(call, now, None)
    return rejected, accepted


def test_a_limit_that_does_not_explain_the_last_rejections_is_given_up():
    rejected, accepted = run_bucket(RateEstimate(), [120.0, 60.0], 8)
    assert rejected < 20  # older ones are explained by the limit of before
    assert accepted > 0.95 * 8 * 180


def test_a_limit_that_rises_is_not_explained_by_rejections_of_before():
    rejected, accepted = run_bucket(RateEstimate(), [60.0, 120.0], 8)
    assert rejected < 20
    assert accepted > 0.9 * 8 * 180


def test_a_rate_that_is_known_closely_is_seldom_tried_faster():
    rejected, accepted = run_bucket(RateEstimate(), [120.0], 10)
    assert rejected <= 7
    assert accepted > 0.98 * 10 * 120


def test_no_more_is_tried_than_headers_claim_though_they_are_old():
    estimate = started(HeaderFacts(60, 59, 1.0))
    estimate.reject(send(estimate, 2, 1.0), 1.1, 1.0, HeaderFacts(60, 30, 30.0))
    assert not estimate.trusted
    times = send_all(estimate, 3, 2.2, 600.0)
    assert len([when for when in times if when >= 120]) <= 8 * 60 + 1


def test_a_wait_that_proves_too_short_is_taken_for_longer():
    estimate = RateEstimate()
    send(estimate, 1, 0.0)
    rejected_at(estimate, 2, 1.0, 4.0)
    assert estimate.hold == pytest.approx(5.0)
    assert estimate.refusal(1.0, 5.0) is None
    rejected_at(estimate, 3, 5.0, 3.0)  # it was a quarter of what it should be
    assert estimate.hold == pytest.approx(11.0)
    rejected_at(estimate, 4, 13.0, 1.0)
    assert estimate.hold == pytest.approx(17.0)


def test_headers_are_doubted_for_a_time_if_they_prove_wrong_three_times():
    estimate = started(HeaderFacts(600, 599, 0.1))
    for serial in (2, 3, 4):
        estimate.reject(send(estimate, serial, 10.0 * serial), 10.0 * serial, 1.0, None)
    assert not estimate.trusted
    send(estimate, 200, 100.0)
    estimate.update_from_header(HeaderFacts(600, 500, 10.0), 200, 100.0)
    assert estimate.trusted


def test_a_call_far_bigger_than_the_others_says_nothing_of_the_rate():
    estimate, serial, now = RateEstimate(even=False), 0, 0.0
    for wait in (1.0, 1.0):
        for _ in range(30):
            serial, now = serial + 1, now + 0.5
            send(estimate, serial, now, 100.0)
            estimate.passed(now)
        serial += 1
        estimate.reject(send(estimate, serial, now, 100.0), now, wait)
    measured = estimate.per_minute
    for _ in range(8):
        serial, now = serial + 1, now + 2.0
        send(estimate, serial, now, 100.0)
        estimate.passed(now)
    serial += 1
    estimate.reject(send(estimate, serial, now, 5_000.0), now, 30.0)
    assert estimate.per_minute == measured
    assert estimate.hold == now + 30.0


def test_a_wait_of_more_than_a_minute_is_tried_after_one_and_then_obeyed():
    estimate = RateEstimate()
    send(estimate, 1, 0.0)
    rejected_at(estimate, 2, 0.1, 200.0)
    assert estimate.hold == pytest.approx(60.1)
    rejected_at(estimate, 3, 60.2, 200.0)
    assert estimate.hold == pytest.approx(260.2)


def test_a_copy_whose_rate_is_zero_admits_nothing_more():
    copy = CounterCopy(60.0, 0.0)
    copy.capacity = 1.0
    copy.anchor(0, 0.0, 0.0)
    assert copy.next_chance(1.0, 0.0, 5.0) == float("inf")


def test_a_call_bigger_than_a_minute_goes_when_the_minute_is_empty():
    copy = CounterCopy(60.0, 0.0)
    copy.is_bucket, copy.amount = False, 100.0
    copy.add(1, 80.0, 0.0)
    assert copy.next_chance(500.0, 0.0, 1.0) == pytest.approx(60.0, abs=0.01)
    assert copy.next_chance(500.0, 0.0, 61.0) == 61.0
    copy.amount = 10.0
    copy.sent.used = 50.0  # what is known of others
    assert copy.next_chance(5.0, 0.0, 62.0) == pytest.approx(63.0)


def test_calls_of_a_fixed_minute_count_again_if_the_minute_slides_after_all():
    copy = CounterCopy(60.0, 0.0)
    copy.is_bucket, copy.amount = False, 2.0
    copy.sent.boundary = 10.0
    copy.add(1, 1.0, 5.0)
    copy.add(2, 1.0, 12.0)
    assert copy.sent.used == 1.0  # the first was in the minute before
    copy.sent.boundary = None
    assert copy.sent.used == 2.0
    assert copy.next_chance(1.0, 0.0, 20.0) == pytest.approx(65.0, abs=0.01)
    copy.sent.boundary = 10.0
    assert copy.sent.used == 1.0


def test_calls_of_long_ago_are_forgotten():
    copy = CounterCopy(60.0, 0.0)
    copy.add(1, 5.0, 0.0)
    copy.add(2, 5.0, 100.0)
    assert copy.sent.used == 5.0
    assert copy.sent.used_until(1, 30.0) == 5.0  # as it was counted then
    copy.settle(1, 7.0)
    assert copy.sent.used == 5.0
    for serial in range(3, 700):
        copy.add(serial, 5.0, 300.0)
    copy.add(700, 5.0, 700.0)
    copy.settle(1, 9.0)
    assert copy.sent.cost_of(1) == 0.0
    assert copy.sent.spent == 7.0 + 699 * 5.0  # as it was last known


def test_a_new_minute_is_used_no_faster_because_of_a_rate_that_was_believed_before():
    counts = []
    for speed in (1.0, 1_000.0):
        estimate = started(HeaderFacts(600, 599, 20.0))
        estimate.copy.speed = speed
        counts.append(len(send_all(estimate, 2, 0.1, 1.1)))
    assert counts[0] == counts[1] < 300


def test_a_minute_counted_in_tokens_is_tried_larger_by_a_call_at_least():
    estimate = RateEstimate(even=False)
    for minute in (0.0, 60.0):
        for number in range(4):
            call = send(estimate, int(minute) + number + 1, minute + 0.5 + 0.1 * number, 10.0)
        estimate.reject(call, call.at, minute + 60.2 - call.at)
        estimate.passed(call.at + 0.01)
    estimate.refusal(10.0, 121.0)
    assert not estimate.copy.is_bucket
    amount = estimate.copy.amount
    most = 0
    for minute in range(120, 600, 60):
        times = send_all(estimate, 10 * minute, minute + 1.4, minute + 59.0, 10.0)
        for at in times:
            estimate.passed(at)
        most = max(most, len(times))
    assert amount < 40
    assert most >= 4


def test_a_minute_that_was_guessed_before_the_first_header_is_given_up_for_a_bucket():
    estimate = RateEstimate()
    for serial in range(1, 6):
        call = send(estimate, serial, 0.1 * serial)
    estimate.reject(call, 0.5, 27.0)
    assert not estimate.copy.is_bucket
    send(estimate, 6, 28.0)
    estimate.update_from_header(HeaderFacts(97, 2, 0.6), 6, 28.0)
    assert estimate.copy.is_bucket
    assert len(send_all(estimate, 7, 28.1, 88.0)) > 80
