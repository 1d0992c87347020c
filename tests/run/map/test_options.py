"""Options and hooks: everything is checked before anything starts, and what is wrong is named."""

from __future__ import annotations

import functools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.run.map.hooks import MapPlan, ask_deciders, observers_of
from abreast.run.map.options import MapOptions, check_name, check_options, check_timeout, name_of
from abreast.run.retry import Retry

NOT_WHOLE = [0, -1, 2.5, True, math.nan, "3"]


def work(value: object) -> object:
    return value


def options(**given: object) -> MapOptions:
    return check_options(work, **{"stored": False, "width": 4, **given})


# --- options


@given(width=st.integers(1, 1000), slack=st.integers(0, 1000))
def test_any_width_and_any_span_from_there_on_make_a_map(width, slack):
    assert (options(width=width).width, options(width=width, span=width + slack).span) == (
        width,
        width + slack,
    )
    assert options(width=width).span >= width
    assert options(width=width, stored=True).span >= options(width=width).span


@pytest.mark.parametrize("value", [*NOT_WHOLE, None])
def test_a_width_that_is_no_whole_number_of_at_least_one_is_refused(value):
    with pytest.raises(ValueError, match=r"^width must be"):
        options(width=value)


@pytest.mark.parametrize("value", [*NOT_WHOLE, 3])
def test_a_span_below_the_width_or_not_whole_is_refused(value):
    with pytest.raises(ValueError, match=r"^span must be"):
        options(span=value)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("order", "items", ValueError),
        ("effect", "twice", ValueError),
        ("on_error", "stop", ValueError),
        ("until", 0, ValueError),
        ("until", True, TypeError),
        ("until", "done", TypeError),
        ("key", "id", TypeError),
        ("lane", 3, TypeError),
        ("retry", -1, ValueError),
        ("timeout", 0, ValueError),
        ("name", "", ValueError),
        ("name", 3, ValueError),
    ],
)
def test_a_wrong_option_is_named(name, value, error):
    with pytest.raises(error, match=name):
        options(**{name: value})


def test_a_wrong_weight_is_refused_before_anything_starts():
    with pytest.raises(ValueError, match="the weight of 'machine'"):
        options(hold={"machine": 0})


@pytest.mark.parametrize("function", [None, 3, "work"])
def test_what_can_not_be_called_is_no_function(function):
    with pytest.raises(TypeError, match="map needs a function"):
        check_options(function, stored=False, width=1)


def test_options_are_kept_in_their_one_form():
    kept = options(retry=2, timeout=3, hold="machine", lane=str, key=str)
    assert (kept.name, kept.retry, kept.timeout, kept.hold) == (
        "work",
        Retry(2),
        3.0,
        (("machine", 1),),
    )
    assert kept.lane is kept.key is str
    assert options(name="mine").name == "mine"
    assert options(until=work).until is work


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, True, "3"])
def test_a_timeout_is_a_positive_number_of_seconds(timeout):
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds"):
        check_timeout(timeout)


def test_no_timeout_is_none():
    assert check_timeout(None) is None
    assert check_timeout(2) == 2.0


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", None, 3, b"a"])
def test_a_name_is_a_line_of_text(name):
    with pytest.raises(ValueError, match="a name must be a line of text"):
        check_name(name)


@pytest.mark.parametrize("name", ["summaries", "a/b", "größe 50%", " "])
def test_a_name_may_be_any_line_of_text(name):
    assert check_name(name) == name


def test_a_map_is_named_for_its_function():
    class Callable:
        def __call__(self, value: object) -> object:
            return value

    assert name_of(work) == "work"
    assert name_of(functools.partial(functools.partial(work, 1), 2)) == "work"
    assert name_of(lambda value: value) == "lambda"
    assert name_of(Callable()) == "Callable"
    assert name_of(len) == "len"


# --- hooks


class Decider:
    """Answers what it was told to, and keeps what it was asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[MapPlan] = []

    async def before_map(self, plan: MapPlan) -> object:
        self.asked.append(plan)
        return self.answer


class PlainDecider(Decider):
    def before_map(self, plan: MapPlan) -> object:
        self.asked.append(plan)
        return self.answer


class StepDecider:
    def before_step(self, plan: MapPlan) -> object:
        return {"retries": 7}


@pytest.mark.parametrize("kind", [Decider, PlainDecider])
async def test_a_decider_may_change_the_numbers_and_is_told_what_they_are(kind):
    decider = kind({"width": 9, "retries": 2, "timeout": 1.5, "span": 70})
    changed = await ask_deciders([decider], "run/work", options(retry=1, timeout=3))
    assert (changed.width, changed.span, changed.retry, changed.timeout) == (9, 70, Retry(2), 1.5)
    assert decider.asked == [MapPlan("run/work", 4, 16, 1, 3.0)]


async def test_a_decider_that_answers_none_changes_nothing_and_a_larger_width_widens_the_span():
    assert await ask_deciders([Decider(None), work], "run/work", options()) == options()
    widened = await ask_deciders([Decider({"width": 50})], "run/work", options())
    assert (widened.width, widened.span) == (50, 50)


async def test_each_decider_sees_what_those_before_it_decided():
    second = Decider({"timeout": None})
    changed = await ask_deciders(
        [Decider({"width": 2, "timeout": 5}), second], "run/work", options()
    )
    assert second.asked == [MapPlan("run/work", 2, 16, 0, 5.0)]
    assert changed.timeout is None


async def test_a_step_has_deciders_of_its_own():
    hooks = [Decider({"width": 9}), StepDecider()]
    step = await ask_deciders(hooks, "run/work", options(single=True, width=1))
    assert (step.width, step.retry) == (1, Retry(7))
    map_ = await ask_deciders(hooks, "run/work", options())
    assert (map_.width, map_.retry) == (9, None)


async def test_retries_that_are_changed_keep_the_rest_of_the_retry():
    changed = await ask_deciders(
        [Decider({"retries": 0})], "run/work", options(retry=Retry(5, base=0.1))
    )
    assert changed.retry == Retry(0, base=0.1)


@pytest.mark.parametrize("name", ["width", "span"])
@pytest.mark.parametrize("value", [*NOT_WHOLE, None])
async def test_a_number_that_can_not_be_is_refused_and_the_hook_is_named(name, value):
    with pytest.raises(
        ValueError,
        match=rf"before_map of Decider answered with a number that can't be: {name} must be",
    ):
        await ask_deciders([Decider({name: value})], "run/work", options())


@pytest.mark.parametrize(
    "answer", [{"retries": -1}, {"retries": True}, {"timeout": 0}, {"timeout": "3"}, {"span": 3}]
)
async def test_so_is_every_other_number(answer):
    with pytest.raises(
        ValueError, match="before_map of Decider answered with a number that can't be"
    ):
        await ask_deciders([Decider(answer)], "run/work", options())


async def test_a_decider_may_change_only_numbers_that_there_are():
    with pytest.raises(
        ValueError,
        match="before_map of Decider may change width, span, retries, timeout, not 'lane'",
    ):
        await ask_deciders([Decider({"lane": "x"})], "run/work", options())


@pytest.mark.parametrize("answer", [3, "width", [("width", 3)], True])
async def test_an_answer_is_a_mapping_or_none(answer):
    with pytest.raises(
        ValueError, match="before_map of Decider must answer None or a mapping of numbers"
    ):
        await ask_deciders([Decider(answer)], "run/work", options())


async def test_the_error_of_a_decider_is_its_own():
    class Broken:
        def before_map(self, plan: MapPlan) -> object:
            raise LookupError("no quota")

    with pytest.raises(LookupError, match="no quota"):
        await ask_deciders([Broken()], "run/work", options())


def test_hooks_that_can_be_called_watch_and_deciders_need_not():
    class Both(Decider):
        def __call__(self, event: object) -> None:
            pass

    both, watcher = Both(None), [].append
    assert observers_of([Decider(None), both, watcher, StepDecider()]) == [both, watcher]


@pytest.mark.parametrize("hook", [3, None, "print", object()])
def test_what_neither_watches_nor_decides_is_no_hook(hook):
    with pytest.raises(TypeError, match="a hook is a function of one event"):
        observers_of([hook])
