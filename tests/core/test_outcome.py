"""Outcomes, usage and timing are values: they add up, compare by content, and are frozen."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.errors import ItemCancelled
from abreast.core.outcome import (
    NO_TIMES,
    NO_USAGE,
    Cancelled,
    Done,
    Failed,
    Timing,
    Usage,
    timing_of,
)

COUNTS = st.integers(0, 10**9)
# Whole cents in binary fractions: sums are exact, so that the laws need no tolerance.
MONEY = st.none() | st.integers(0, 10**6).map(lambda cents: cents / 64)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, MONEY, st.booleans())
SECONDS = st.floats(0, 1e6)
TIMES = st.tuples(SECONDS, SECONDS, SECONDS) | st.tuples(
    SECONDS, SECONDS, SECONDS, SECONDS, SECONDS
)
FIELDS = st.tuples(COUNTS, st.text(), st.integers(), st.none() | st.text(), USAGES, TIMES)


@given(one=USAGES, other=USAGES)
def test_usage_adds_up_the_same_in_either_order(one, other):
    assert one + other == other + one


@given(one=USAGES, other=USAGES, third=USAGES)
def test_usage_adds_up_the_same_however_it_is_grouped(one, other, third):
    assert (one + other) + third == one + (other + third)


@given(usage=USAGES)
def test_no_usage_changes_nothing(usage):
    assert usage + NO_USAGE == NO_USAGE + usage == usage


@given(one=USAGES, other=USAGES)
def test_an_unknown_price_is_never_zero_and_an_estimate_stays_one(one, other):
    total = one + other
    assert (total.usd is None) == (one.usd is None or other.usd is None)
    assert total.estimate == (one.estimate or other.estimate)
    assert total.requests == one.requests + other.requests
    assert total.input_tokens == one.input_tokens + other.input_tokens
    assert total.output_tokens == one.output_tokens + other.output_tokens
    if one.usd is not None and other.usd is not None:
        assert total.usd == one.usd + other.usd


@given(times=TIMES)
def test_the_parts_of_the_timing_sum_to_the_wall_time(times):
    timing = timing_of(times)
    parts = (timing.queued, timing.waited, timing.backoff, *timing.service)
    assert parts == times
    assert math.isclose(timing.wall, math.fsum(parts), rel_tol=1e-12, abs_tol=1e-12)


def test_the_timing_of_nothing_is_zero():
    assert timing_of(NO_TIMES) == Timing()
    assert Timing().wall == 0.0


@pytest.mark.parametrize(
    "outcome",
    [Done(0, "0000", "value"), Failed(0, "0000", OSError()), Cancelled(0, "0000", "stopped")],
    ids=["Done", "Failed", "Cancelled"],
)
def test_an_outcome_is_frozen(outcome):
    for field in dataclasses.fields(outcome):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(outcome, field.name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(outcome, field.name)
    with pytest.raises((AttributeError, TypeError)):
        outcome.another = 1
    assert not hasattr(outcome, "__dict__")
    assert outcome.timing.wall == 0.0


def test_usage_and_timing_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        NO_USAGE.requests = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Timing().queued = 1.0


@given(fields=FIELDS, changed=st.integers(0, 4))
def test_outcomes_are_equal_when_all_but_their_times_are(fields, changed):
    outcome = Done(*fields)
    assert outcome == Done(*fields[:5], (9.0, 9.0, 9.0, 9.0))
    others = (
        fields[0] + 1,
        fields[1] + "x",
        fields[2] + 1,
        (fields[3] or "") + "x",
        fields[4] + Usage(requests=1),
    )
    assert outcome != Done(*fields[:changed], others[changed], *fields[changed + 1 :])


def test_outcomes_of_different_kinds_differ():
    error = OSError()
    assert Failed(0, "k", error) == Failed(0, "k", error)
    assert Failed(0, "k", error) != Failed(0, "k", OSError())
    assert Cancelled(0, "k", "x") != Done(0, "k", "x")


def test_only_a_done_is_ok_and_each_says_what_it_is():
    assert (Done.ok, Failed.ok, Cancelled.ok) == (True, False, False)
    assert (Done.state, Failed.state, Cancelled.state) == ("done", "failed", "cancelled")


def test_every_outcome_has_an_error_and_only_a_done_one_a_value():
    done, failed = Done(0, "a", 7), Failed(1, "b", LookupError("nothing there"))
    cancelled = Cancelled(2, "c", "the map was left")
    assert (done.value, done.error, done.ok) == (7, None, True)
    assert (str(failed.error), failed.ok) == ("nothing there", False)
    assert isinstance(cancelled.error, ItemCancelled)
    assert str(cancelled.error) == "item c was cancelled: the map was left"
    for outcome, why in ((failed, "LookupError: nothing there"), (cancelled, "the map was left")):
        with pytest.raises(AttributeError, match=f"item {outcome.key} has no value: .*{why}") as no:
            outcome.value  # noqa: B018 - reading it is the test
        assert type(no.value.__cause__) is type(outcome.error)
