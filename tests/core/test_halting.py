"""A map stops exactly where the plain loop would."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.core.halting import ON_ERROR, EndsAt, Halting, OnError, Until
from abreast.core.outcome import Cancelled, Done, Failed, Outcome

States = list[str]


def outcomes_of(states: States) -> list[Outcome[int]]:
    made: list[Outcome[int]] = []
    for index, state in enumerate(states):
        if state == "done":
            made.append(Done(index, str(index), index))
        elif state == "failed":
            made.append(Failed(index, str(index), OSError(index)))
        else:
            made.append(Cancelled(index, str(index), "stopped"))
    return made


def plain_loop(
    outcomes: Iterable[Outcome[int]], until: Until[int], on_error: OnError
) -> list[Outcome[int]]:
    """The reference: a plain loop."""
    seen: list[Outcome[int]] = []
    for outcome in outcomes:
        seen.append(outcome)
        if isinstance(until, int) and sum(one.ok for one in seen) == until:
            break
        if callable(until) and until(outcome):
            break
        if on_error != "collect" and not outcome.ok:
            break
    return seen


def halted(outcomes: Iterable[Outcome[int]], rule: Halting[int]) -> list[Outcome[int]]:
    seen: list[Outcome[int]] = []
    for outcome in outcomes:
        seen.append(outcome)
        if rule.stops_at(outcome):
            break
    return seen


STATES = st.lists(st.sampled_from(["done", "failed", "cancelled"]), max_size=12)
RULES = st.sampled_from(ON_ERROR)


@given(states=STATES, until=st.none() | st.integers(1, 6), on_error=RULES)
def test_a_number_of_successes_stops_where_the_plain_loop_would(states, until, on_error):
    outcomes = outcomes_of(states)
    assert halted(outcomes, Halting(until, on_error)) == plain_loop(outcomes, until, on_error)


@given(states=STATES, wanted=st.sets(st.integers(0, 12)), on_error=RULES)
def test_a_predicate_stops_where_the_plain_loop_would_and_is_asked_once_for_each_outcome_in_order(
    states, wanted, on_error
):
    asked: list[Outcome[int]] = []

    def predicate(outcome: Outcome[int]) -> bool:
        asked.append(outcome)
        return outcome.index in wanted

    outcomes = outcomes_of(states)
    expected = plain_loop(outcomes, lambda outcome: outcome.index in wanted, on_error)
    assert halted(outcomes, Halting(predicate, on_error)) == expected
    assert asked == expected


@given(states=STATES, until=st.none() | st.integers(1, 6), on_error=RULES)
def test_always_goes_on_is_said_only_of_a_rule_that_always_does(states, until, on_error):
    rule: Halting[int] = Halting(until, on_error)
    assert rule.always_goes_on == (until is None and on_error == "collect")
    if rule.always_goes_on:
        assert not any(rule.stops_at(outcome) for outcome in outcomes_of(states))


def test_a_predicate_may_answer_with_anything_that_is_true_or_not():
    rule: Halting[int] = Halting(lambda outcome: outcome.index)  # type: ignore[arg-type,return-value]
    assert len(halted(outcomes_of(["done"] * 3), rule)) == 2


def test_the_error_of_a_predicate_comes_out():
    rule: Halting[int] = Halting(lambda _: 1 / 0 > 0)
    with pytest.raises(ZeroDivisionError):
        rule.stops_at(Done(0, "0", 0))


def test_an_async_predicate_is_refused_rather_than_taken_for_yes():
    async def found(outcome: Outcome[int]) -> bool:
        return False

    async_rule: Callable[[Outcome[int]], bool] = found  # type: ignore[assignment]
    rule: Halting[int] = Halting(async_rule)
    with pytest.raises(TypeError, match="until must be a plain function"):
        rule.stops_at(Done(0, "0", 0))


@pytest.mark.parametrize("until", [0, -1])
def test_until_below_one_is_a_value_error(until):
    with pytest.raises(ValueError, match=f"until must be at least 1, not {until}"):
        Halting(until)


@pytest.mark.parametrize("until", [True, False, 2.5, math.nan, "3", [1]])
def test_until_that_is_neither_number_nor_function_is_a_type_error(until):
    with pytest.raises(TypeError, match="until must be a whole number of successes or a function"):
        Halting(until)


@pytest.mark.parametrize("on_error", ["", "stop", None, 1])
def test_on_error_is_one_of_three_words(on_error):
    with pytest.raises(ValueError, match="on_error must be one of collect, halt, raise"):
        Halting(None, on_error)


@given(states=STATES, until=st.none() | st.integers(1, 6), on_error=RULES, data=st.data())
def test_the_end_is_never_before_the_stop_and_is_known_as_soon_as_it_can_be(
    states, until, on_error, data
):
    outcomes = outcomes_of(states)
    rule: Halting[int] = Halting(until, on_error)
    stop = plain_loop(outcomes, until, on_error)
    settled: list[Outcome[int]] = []
    for outcome in data.draw(st.permutations(outcomes)):
        settled.append(outcome)
        rule.settle(outcome)
        known = sorted(settled, key=lambda one: one.index)
        ended = plain_loop(known, until, on_error)
        certain = ended and (
            (on_error != "collect" and not ended[-1].ok)
            or (until is not None and sum(one.ok for one in ended) == until)
        )
        assert rule.end == (ended[-1].index if certain else None)
        assert rule.end is None or stop[-1].index <= rule.end


@given(states=STATES, number=st.integers(1, 4), first=st.integers(0, 12), data=st.data())
def test_a_number_reached_before_the_first_item_that_may_end_counts_from_there(
    states, number, first, data
):
    outcomes = outcomes_of(states)
    failed = [one.index for one in outcomes if not one.ok]
    expected = next(
        (at for place, at in enumerate(failed) if place + 1 >= number and at >= first), None
    )

    class Until:
        ends = (EndsAt[int](lambda outcome: not outcome.ok, number, first),)

        def __call__(self, outcome: Outcome[int]) -> bool:
            return False

    rule: Halting[int] = Halting(Until())
    for outcome in data.draw(st.permutations(outcomes)):
        rule.settle(outcome)
    assert rule.end == expected
    seen = halted(outcomes, rule)
    assert [one.index for one in seen] == list(
        range(len(outcomes) if expected is None else expected + 1)
    )


@given(states=STATES, until=st.integers(1, 6))
def test_what_was_released_counts_for_the_end_as_what_waits_does(states, until):
    outcomes = outcomes_of(states)
    rule: Halting[int] = Halting(until)
    for outcome in outcomes:
        rule.settle(outcome)
        if rule.stops_at(outcome):
            break
        assert rule.end is None
