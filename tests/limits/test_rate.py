"""Rates, in virtual time: never faster than stated, never slower, and no timer fires needlessly."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abreast.core.outcome import Usage
from abreast.limits.limit import Need
from abreast.limits.rate import Rate
from tests.limits.desk import GateRecorder
from tests.properties import tried

CLOCK_TOLERANCE = 1e-5  # seconds: below the accuracy of a clock
STARTS = st.sampled_from([0.0, 1 / 3, 1e3 + 0.1, 1e6 + 0.7, 1.7e9 + 0.3])
RATES = st.tuples(st.sampled_from([1, 3, 7, 60, 600, 90_000]), st.sampled_from([1, 7, 60, 3600]))
BURSTS = st.sampled_from([1, 2, 10, 1000])
ARRIVALS = st.lists(
    st.tuples(st.sampled_from([0, 0, 0.25, 1, 40]), st.integers(0, 25)), min_size=1, max_size=12
)


def tokens(number: int) -> Need:
    return Need(tokens=number)


def expected_times(
    arrivals: list[tuple[float, int]], speed: Fraction, burst: int
) -> list[Fraction]:
    """When each is let through by a bucket computed with fractions, first come first served."""
    level, at, granted = Fraction(burst), Fraction(0), []
    for arrival, cost in zip(
        accumulate(Fraction(wait) for wait, _ in arrivals), (c for _, c in arrivals), strict=True
    ):
        now = max(at, arrival)
        level, at = min(Fraction(burst), level + (now - at) * speed), now
        lacking = min(cost, burst) - level
        if lacking > 0:
            level, at = level + lacking, at + lacking / speed
        level -= cost
        granted.append(at)
    return granted


@given(start=STARTS, rate=RATES, burst=BURSTS, arrivals=ARRIVALS)
@example(start=1.7e9 + 0.3, rate=(90_000, 1), burst=1000, arrivals=[(0, 1)] * 12)
@example(start=1e6 + 0.7, rate=(90_000, 60), burst=1, arrivals=[(0, 1)] * 12)
@tried(300)
def test_everyone_is_let_through_at_the_first_moment_the_rate_allows_and_not_before(
    start, rate, burst, arrivals
):
    count, per = rate
    recorder, limit = GateRecorder(start), Rate(count, per, of="tokens", burst=burst)
    for name, (wait, cost) in enumerate(arrivals):
        recorder.clock.advance_nowait(wait)
        recorder.ask(name, (limit, tokens(cost)))
    while recorder.waiting:
        due = recorder.clock.next_due
        assert due is not None
        recorder.clock.advance_nowait(max(0.0, due - recorder.clock.now()))
    expected = expected_times(arrivals, Fraction(count, per), burst)
    assert recorder.granted == list(range(len(arrivals)))
    for name, when in enumerate(expected):
        assert math.isclose(
            recorder.times[name] - start, when, rel_tol=1e-9, abs_tol=CLOCK_TOLERANCE
        )
    # One timer for each that waited, and sometimes a second if the clock's rounding let the first
    # fire too soon.
    assert recorder.clock.fired <= 2 * len(arrivals)
    assert recorder.clock.next_due is None


@given(start=STARTS, rate=RATES, burst=BURSTS, arrivals=ARRIVALS)
@tried(200)
def test_no_stretch_of_time_lets_through_more_than_the_burst_and_its_share(
    start, rate, burst, arrivals
):
    count, per = rate
    recorder, limit = GateRecorder(start), Rate(count, per, of="tokens", burst=burst)
    for name, (wait, cost) in enumerate(arrivals):
        recorder.clock.advance_nowait(wait)
        recorder.ask(name, (limit, tokens(cost)))
    recorder.clock.advance_nowait(1e7)
    costs = [cost for _, cost in arrivals]
    assert len(recorder.granted) == len(costs)
    for first in range(len(costs)):
        for last in range(first, len(costs)):
            seconds = recorder.times[last] - recorder.times[first]
            # A need bigger than the bucket is let through alone, when it is full.
            passed = sum(costs[first:last]) + min(costs[last], burst)
            assert passed <= burst + (seconds + CLOCK_TOLERANCE) * count / per + 1e-9
            if seconds <= per and max(costs) <= burst:
                assert passed <= count + burst + CLOCK_TOLERANCE * count / per + 1e-9


def test_requests_are_paced_evenly_after_the_first_burst():
    recorder, rate = GateRecorder(), Rate(120, per=60)
    for name in range(7):
        recorder.ask(name, rate)
    recorder.clock.advance_nowait(60)
    assert [recorder.times[name] for name in range(7)] == pytest.approx(
        [0, 0, 0.5, 1.0, 1.5, 2.0, 2.5]
    )


@pytest.mark.parametrize(
    ("count", "per", "burst"), [(600, 60, 10), (6, 60, 1), (60, 60, 1), (90, 1, 90)]
)
def test_the_burst_is_a_seconds_worth_and_at_least_one(count, per, burst):
    assert Rate(count, per).burst == burst


def test_the_whole_rate_is_used_while_somebody_waits():
    recorder, rate = GateRecorder(), Rate(60, per=60)
    for name in range(200):
        recorder.ask(name, rate)
    recorder.clock.advance_nowait(100.5)
    assert len(recorder.granted) == 101
    assert recorder.clock.fired == 100


def test_a_need_bigger_than_the_bucket_is_let_through_alone_and_paid_off_before_the_next():
    recorder, rate = GateRecorder(), Rate(10, per=1, of="tokens", burst=10)
    assert recorder.ask("small", (rate, tokens(4)))
    assert not recorder.ask("huge", (rate, tokens(50)))
    recorder.clock.advance_nowait(0.4)
    assert "huge" in recorder.holding  # the bucket is full again
    assert not recorder.ask("next", (rate, tokens(1)))
    recorder.clock.advance_nowait(4.0)
    assert "next" in recorder.waiting
    recorder.clock.advance_nowait(0.1)
    assert recorder.times["next"] == pytest.approx(4.5)


def test_a_big_need_gets_its_turn_before_the_small_ones_that_came_after_it():
    recorder, rate = GateRecorder(), Rate(10, per=1, of="tokens", burst=10)
    recorder.ask("first", (rate, tokens(10)))
    recorder.ask("big", (rate, tokens(10)))
    for second in range(100):
        recorder.ask(second, (rate, tokens(1)))
        recorder.clock.advance_nowait(0.1)
        if "big" in recorder.holding:
            break
    assert recorder.granted == ["first", "big"]
    assert recorder.times["big"] == pytest.approx(1.0)


def test_what_was_reserved_and_not_used_is_refunded_and_wakes_those_who_wait():
    recorder, rate = GateRecorder(), Rate(1, per=1, of="tokens", burst=100)
    recorder.ask("one", (rate, tokens(100)))
    recorder.ask("two", (rate, tokens(60)))
    recorder.give("one", Usage(1, 25, 15))
    assert recorder.granted == ["one", "two"]
    assert not recorder.ask("three", (rate, tokens(1)))


def test_a_refund_brings_the_next_turn_forward():
    recorder, rate = GateRecorder(), Rate(1, per=1, of="tokens", burst=100)
    recorder.ask("one", (rate, tokens(100)))
    recorder.ask("two", (rate, tokens(100)))
    assert recorder.clock.next_due == pytest.approx(100.0)
    recorder.give("one", Usage(1, 30))
    assert recorder.clock.next_due == pytest.approx(30.0)


def test_a_refund_never_fills_the_bucket_past_its_brim():
    recorder, rate = GateRecorder(), Rate(1, per=1, of="tokens", burst=10)
    recorder.ask("one", (rate, tokens(10)))
    recorder.clock.advance_nowait(100)
    recorder.give("one", Usage())
    assert recorder.ask("two", (rate, tokens(10)))
    assert not recorder.ask("three", (rate, tokens(1)))


def test_use_beyond_the_reservation_is_charged_and_unknown_use_costs_what_was_reserved():
    recorder, rate = GateRecorder(), Rate(1, per=1, of="tokens", burst=10)
    recorder.ask("one", (rate, tokens(5)))
    recorder.give("one", Usage(1, 10, 5))
    assert not recorder.ask("two", (rate, tokens(5)))
    assert recorder.clock.next_due == pytest.approx(10.0)
    recorder.clock.advance_nowait(10.0)
    recorder.give("two")
    assert not recorder.ask("three", (rate, tokens(5)))
    assert recorder.clock.next_due == pytest.approx(15.0)


@given(
    moves=st.lists(
        st.tuples(st.just("ask"), st.integers(0, 10))
        | st.tuples(st.just("settle"), st.integers(0, 20))
        | st.tuples(st.just("settle"), st.none())
        | st.tuples(st.just("wait"), st.sampled_from([0.5, 1, 3])),
        max_size=40,
    )
)
@tried(200)
def test_what_is_used_and_what_is_reserved_stay_together_below_the_burst_and_the_time_passed(moves):
    recorder, rate = GateRecorder(), Rate(4, per=2, of="tokens", burst=10)
    used: dict[int, int] = {}
    reserved: dict[int, int] = {}
    for name, (move, what) in enumerate(moves):
        if move == "ask":
            reserved[name] = what
            recorder.ask(name, (rate, tokens(what)))
        elif move == "settle" and recorder.holding:
            oldest = min(recorder.holding)
            used[oldest] = reserved[oldest] if what is None else what
            recorder.give(oldest, None if what is None else Usage(1, what // 2, what - what // 2))
        elif move == "wait":
            recorder.clock.advance_nowait(what)
        if recorder.granted and recorder.times[recorder.granted[-1]] == recorder.clock.now():
            known = sum(used.get(granted, reserved[granted]) for granted in recorder.granted)
            overdrawn = sum(max(0, used[one] - reserved[one]) for one in used)
            assert known - overdrawn <= 10 + 2 * recorder.clock.now() + 1e-6
        recorder.check(rate)
    recorder.clock.advance_nowait(1e4)
    assert not recorder.waiting
    assert recorder.granted == sorted(reserved)


def test_a_rate_of_requests_ignores_tokens_and_refunds_nothing():
    recorder, rate = GateRecorder(), Rate(1, per=1, burst=2)
    assert recorder.ask("two at once", (rate, Need(requests=2, tokens=10**9)))
    recorder.give("two at once", Usage())
    assert not recorder.ask("next", rate)
    assert recorder.clock.next_due == pytest.approx(1.0)


def test_time_that_stands_still_or_jumps_back_fills_nothing():
    rate = Rate(1, per=1, burst=1)
    assert rate.refusal(Need(), 100.0) is None
    rate.take(Need(), 100.0)
    assert rate.refusal(Need(), 100.0) == pytest.approx(101.0)
    assert rate.refusal(Need(), 50.0) == pytest.approx(51.0)


def test_a_refusal_always_names_a_later_moment():
    rate = Rate(90_000, per=60, of="tokens", burst=1)
    now = 1e9
    rate.take(tokens(1), now)
    for _ in range(100):
        when = rate.refusal(tokens(1), now)
        if when is None:
            break
        assert when > now
        now = when
    assert rate.refusal(tokens(1), now) is None


@pytest.mark.parametrize("number", [0, -1, math.nan, math.inf, True, "3", None])
def test_numbers_that_make_no_rate_are_refused(number):
    with pytest.raises(ValueError, match="positive count and period"):
        Rate(number)
    with pytest.raises(ValueError, match="positive count and period"):
        Rate(1, per=number)
    if number is not None:
        with pytest.raises(ValueError, match="positive burst"):
            Rate(1, burst=number)


def test_a_rate_counts_requests_or_tokens():
    with pytest.raises(ValueError, match="'requests' or 'tokens', not 'words'"):
        Rate(1, of="words")
    assert repr(Rate(90_000, of="tokens")) == "<Rate 90000 tokens per 60 s, 1.5e+03/1500 left>"
