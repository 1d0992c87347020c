"""The window admits, starts and releases exactly what it may, whatever the schedule."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from abreast.core.window import Order, Window, whole
from tests.core.window_laws import hold_to_the_laws
from tests.properties import tried

ORDERS: tuple[Order, ...] = ("item", "completion")
NOT_WHOLE = [0, -1, 2.5, 1.0, True, False, math.nan, math.inf, "3", b"3", None, [3], 3j]


@given(
    width=st.integers(1, 6),
    slack=st.integers(0, 8),
    count=st.integers(0, 30),
    order=st.sampled_from(ORDERS),
    seed=st.integers(0, 2**32),
)
@tried(250)
def test_every_schedule_keeps_the_laws_and_uses_all_the_room_there_is(
    width, slack, count, order, seed
):
    schedule = Random(seed)
    for _ in range(10):
        window: Window[tuple[str, int]] = Window(width, width + slack, order)
        hold_to_the_laws(window, count, schedule.randrange)
        assert window.peak == min(width, count)


class WindowBesideAModel(RuleBasedStateMachine):
    """Every call in every order, also wrong ones, beside a model that is too simple to be wrong."""

    @initialize(width=st.integers(1, 4), slack=st.integers(0, 4), order=st.sampled_from(ORDERS))
    def open(self, width: int, slack: int, order: Order) -> None:
        self.window: Window[str] = Window(width, width + slack, order)
        self.width, self.span, self.by_item = width, width + slack, order == "item"
        self.unsettled: list[int] = []
        self.executing: set[int] = set()
        self.settled: list[int] = []
        self.read = self.ripened = self.taken = self.peak = 0

    @rule()
    def admit(self) -> None:
        if self.read - self.taken == self.span:
            with pytest.raises(RuntimeError, match="span"):
                self.window.admit()
        else:
            assert self.window.admit() == self.read
            self.unsettled.append(self.read)
            self.read += 1

    @precondition(lambda self: set(self.unsettled) - self.executing)
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(set(self.unsettled) - self.executing)))
        if len(self.executing) == self.width:
            with pytest.raises(RuntimeError, match="width"):
                self.window.start()
        else:
            self.window.start()
            self.executing.add(index)
            self.peak = max(self.peak, len(self.executing))

    @precondition(lambda self: not self.executing)
    @rule()
    def finish_what_was_never_started(self) -> None:
        with pytest.raises(RuntimeError, match="finished more"):
            self.window.finish()

    @precondition(lambda self: self.executing)
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        self.executing.remove(data.draw(st.sampled_from(sorted(self.executing))))
        self.window.finish()

    @precondition(lambda self: self.unsettled)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """After its work, or without any for an item whose outcome is recorded."""
        index = data.draw(st.sampled_from(self.unsettled))
        if index in self.executing:
            self.executing.remove(index)
            self.window.finish()
        self.unsettled.remove(index)
        self.settled.append(index)
        self.window.settle(index, f"outcome {index}")

    @rule(ahead=st.integers(0, 3))
    def settle_what_was_never_read(self, ahead: int) -> None:
        with pytest.raises(RuntimeError, match="under way"):
            self.window.settle(self.read + ahead, "nothing")

    @precondition(lambda self: self.by_item and set(range(self.read)) - set(self.unsettled))
    @rule(data=st.data())
    def settle_twice(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(set(range(self.read)) - set(self.unsettled))))
        with pytest.raises(RuntimeError, match="under way"):
            self.window.settle(index, "another")

    @precondition(lambda self: not self.by_item and not self.unsettled)
    @rule()
    def settle_more_than_was_read(self) -> None:
        with pytest.raises(RuntimeError, match="under way"):
            self.window.settle(0, "another")

    @rule()
    def ripen(self) -> None:
        expected = self.turn
        assert self.window.ripen() == (None if expected is None else f"outcome {expected}")
        if expected is not None:
            self.ripened += 1

    @precondition(lambda self: self.by_item and self.turn is not None)
    @rule()
    def ripen_and_put_back(self) -> None:
        outcome = self.window.ripen()
        assert outcome is not None
        self.window.unripen(self.ripened, outcome)

    @precondition(lambda self: self.by_item and self.read)
    @rule(data=st.data())
    def replace_by_itself(self, data: st.DataObject) -> None:
        """A held outcome changes its form; one that is not held is not added again."""
        index = data.draw(st.integers(0, self.read - 1))
        self.window.replace(index, f"outcome {index}")

    @rule()
    def take(self) -> None:
        if self.taken == self.ripened:
            with pytest.raises(RuntimeError, match="ripe"):
                self.window.take()
        else:
            self.window.take()
            self.taken += 1

    @property
    def ready(self) -> list[int]:
        """What may ripen now, in order."""
        if not self.by_item:
            return self.settled[self.ripened :]
        settled, index = set(self.settled), self.ripened
        while index in settled:
            index += 1
        return list(range(self.ripened, index))

    @property
    def turn(self) -> int | None:
        return self.ready[0] if self.ready else None

    @invariant()
    def it_agrees_with_the_model(self) -> None:
        window = self.window
        assert window.executing == len(self.executing) <= self.width
        assert window.held == self.read - self.taken <= self.span
        assert window.unripe == self.read - self.ripened
        assert window.peak == self.peak
        assert window.may_start == (len(self.executing) < self.width)
        assert window.may_admit == (self.read - self.taken < self.span)
        if self.by_item:
            for most in (0, 1, 2, 9):
                assert window.upcoming(most) == [f"outcome {index}" for index in self.ready[:most]]


WindowBesideAModel.TestCase.settings = tried(120, stateful_step_count=40)
TestEveryCallInEveryOrder = WindowBesideAModel.TestCase


def test_a_slow_first_item_does_not_idle_the_window():
    window: Window[str] = Window(2, 4)
    for _ in range(4):
        window.admit()
    window.start()  # the slow one
    for index in (1, 2, 3):
        window.start()
        window.finish()
        window.settle(index, f"outcome {index}")
    assert window.ripen() is None
    assert not window.may_admit
    window.finish()
    window.settle(0, "outcome 0")
    assert [window.ripen() for _ in range(5)] == [
        "outcome 0",
        "outcome 1",
        "outcome 2",
        "outcome 3",
        None,
    ]
    assert not window.may_admit  # ripe outcomes count until the caller takes them
    window.take()
    assert window.may_admit


def test_an_outcome_may_be_held_in_another_form_until_its_turn():
    window: Window[str] = Window(1, 2)
    window.admit()
    window.admit()
    window.settle(1, "on disk")
    window.replace(1, "read back")
    window.replace(0, "not settled, so not held")
    window.settle(0, "first")
    assert [window.ripen(), window.ripen()] == ["first", "read back"]


def test_an_item_settles_once_whether_its_outcome_is_held_or_gone():
    window: Window[str] = Window(1, 2)
    window.admit()
    window.admit()
    for index in (1, 0):
        window.settle(index, "first")
        with pytest.raises(RuntimeError, match=f"item {index} can't settle"):
            window.settle(index, "second")
    assert [window.ripen(), window.ripen()] == ["first", "first"]
    with pytest.raises(RuntimeError, match="item 1 can't settle"):
        window.settle(1, "second")


def test_its_repr_says_where_it_stands():
    window: Window[str] = Window(2, 5)
    window.admit()
    window.start()
    assert repr(window) == "<Window 1/2 executing, 1/5 held, 0 taken, item order>"


@pytest.mark.parametrize("value", NOT_WHOLE)
def test_what_is_no_whole_number_of_at_least_one_makes_no_window(value):
    with pytest.raises(ValueError, match=r"^width must be"):
        Window(value, 8)
    with pytest.raises(ValueError, match=r"^span must be"):
        Window(1, value)


@pytest.mark.parametrize("value", NOT_WHOLE)
def test_whole_refuses_and_names_what_it_refuses(value):
    with pytest.raises(ValueError, match=r"^the number must be .*at least 1, not "):
        whole("the number", value)


def test_whole_says_nan_as_people_write_it():
    with pytest.raises(ValueError, match=r"not NaN$"):
        whole("width", math.nan)


@given(least=st.integers(-5, 5), value=st.integers(-10, 10))
def test_whole_accepts_exactly_what_is_large_enough(least, value):
    if value >= least:
        assert whole("it", value, least) == value
    else:
        with pytest.raises(ValueError, match=f"^it must be at least {least}, not {value}$"):
            whole("it", value, least)


def test_a_span_below_the_width_is_refused():
    with pytest.raises(ValueError, match=r"span must be at least the width \(4\), not 3"):
        Window(4, 3)


@pytest.mark.parametrize("order", ["", "items", None, 1])
def test_an_order_that_is_none_is_refused(order):
    with pytest.raises(ValueError, match="order must be 'item' or 'completion'"):
        Window(1, 1, order)
