"""The counter that explains a server's decisions, against the storm's own counters."""

import pytest

from abreast.limits.governor.counter_fit import Assumed, fit_counter, rate_of_bucket
from abreast.limits.governor.sent_calls import SentCall
from abreast.testing.storm.limits.limits import Bucket, Fixed, Sliding

MINUTE = 60.0


def decisions(quota, times):
    """What a server with this quota decides of calls that are sent at these times."""
    calls = []
    for serial, now in enumerate(times, 1):
        if quota.wait(1.0, now):
            calls.append(SentCall(serial, now, 0.0, refused=1.0))
        else:
            quota.take(1.0, now)
            calls.append(SentCall(serial, now, 1.0))
    return calls


def burst_and_probes(count, interval, probes):
    """Calls in quick succession, and then one at each of these times."""
    return [number * interval for number in range(count)] + list(probes)


def fit(calls, kind="bucket", rate=1.0, capacity=10.0, **options):
    last = max(index for index, call in enumerate(calls) if call.refused)
    assumed = Assumed(kind, rate, capacity, mean=1.0, slack=0.5)
    return fit_counter(calls[: last + 1], MINUTE, assumed, **options)


@pytest.mark.parametrize("rate", [20.0, 60.0, 150.0])
@pytest.mark.parametrize("capacity", [2.0, 4.0, 20.0])
def test_the_rate_of_a_bucket_is_found(rate, capacity):
    interval = MINUTE / rate
    fast = [number * 0.8 * interval for number in range(200)]  # a fourth faster than admitted
    found = fit(decisions(Bucket(rate, capacity, MINUTE, 0.0), fast), rate=rate / MINUTE / 2)
    assert found.kind == "bucket"
    assert found.rate * MINUTE == pytest.approx(rate, rel=0.06)


def test_the_capacity_of_a_bucket_is_found_if_it_was_full_at_first():
    times = [number * 0.2 for number in range(60)]
    found = fit(decisions(Bucket(60.0, 20.0, MINUTE, 0.0), times)[:30])
    assert found.kind == "bucket"
    assert found.bounds.rejected == pytest.approx(20.5, abs=1.5)


def test_nothing_that_comes_back_for_long_is_a_minute_that_slides():
    times = burst_and_probes(31, 0.1, [5.0, 15.0, 35.0])
    found = fit(decisions(Sliding(30.0, MINUTE), times))
    assert found.kind == "sliding"
    assert found.bounds.admitted == 30
    assert found.bounds.rejected == 31


def test_a_minute_that_is_full_again_at_once_is_a_fixed_one():
    times = burst_and_probes(31, 0.1, [10.0])
    for start in (20.0, 80.0):  # minutes begin then
        times += [start + number * 0.1 for number in range(31)]
    found = fit(decisions(Fixed(30.0, MINUTE, -40.0), times))
    assert found.kind == "fixed"
    assert found.boundary % MINUTE == pytest.approx(20.0, abs=0.2)
    assert found.bounds.admitted == 30


def test_rejections_of_before_a_limit_has_changed_are_left_out():
    quota = Bucket(60.0, 5.0, MINUTE, 0.0)
    calls = decisions(quota, [number * 0.8 for number in range(60)])
    quota.left(48.0)
    quota.resize(20.0, 5.0)
    calls += decisions(quota, [48.0 + number * 2.0 for number in range(40)])
    for serial, call in enumerate(calls, 1):
        call.serial = serial
    found = fit(calls)
    assert found.kind == "bucket"
    assert found.rate * MINUTE == pytest.approx(20.0, rel=0.15)


def test_a_rejection_soon_after_the_first_remembered_call_says_nothing():
    times = burst_and_probes(31, 0.1, [63.2 + number * 0.1 for number in range(31)])
    calls = decisions(Sliding(30.0, MINUTE), times)[20:]  # of the first minute, ten are left
    assert fit(calls, kind="sliding", is_whole=True) is not None
    assert fit(calls, kind="sliding", is_whole=False) is None  # one rejection is too few


def test_a_full_bucket_does_not_explain_a_rejection():
    times = [0.0, 1.0, 31.0, 32.0, 62.0, 63.0]  # each second one is rejected
    found = fit(decisions(Bucket(4.0, 1.0, MINUTE, 0.0), times), rate=2.0)
    assert found is None or found.rate < 1.0


def test_with_one_rejection_the_rate_is_that_at_which_the_bucket_was_empty():
    calls = decisions(Bucket(60.0, 5.0, MINUTE, 0.0), [number * 0.8 for number in range(40)])
    first = next(index for index, call in enumerate(calls) if call.refused)
    assumed = Assumed("bucket", 1.5, 5.0, mean=1.0, slack=0.5)
    assert fit_counter(calls[: first + 1], MINUTE, assumed) is None
    assert rate_of_bucket(calls[: first + 1], assumed) == pytest.approx(1.0, rel=0.05)
