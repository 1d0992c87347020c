"""Slots: never more taken than there are, all of them taken where they are wanted, first come first served."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abreast.limits.limit import WHENEVER, Need
from abreast.limits.slots import Slots
from tests.limits.desk import Desk

WEIGHTS = st.integers(1, 6) | st.just("all")
MOVES = st.lists(
    st.tuples(st.just("ask"), WEIGHTS)
    | st.tuples(st.just("give"), st.integers(0, 9))
    | st.tuples(st.just("leave"), st.integers(0, 9))
    | st.tuples(st.just("resize"), st.integers(1, 5)),
    max_size=40,
)


class PlainSlots:
    """What slots are: a number, a list of those who hold some, and a queue."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.held: dict[int, int] = {}
        self.queue: list[tuple[int, int | str]] = []
        self.granted: list[int] = []

    def serve(self) -> None:
        while self.queue:
            name, asked = self.queue[0]
            weight = self.count if asked == "all" else min(asked, self.count)
            if sum(self.held.values()) + weight > self.count:
                return
            self.queue.pop(0)
            self.held[name] = weight
            self.granted.append(name)


@given(count=st.integers(1, 5), moves=MOVES)
@settings(max_examples=200)
def test_slots_are_handed_out_as_a_plain_queue_would(count, moves):
    desk, slots, plain = Desk(), Slots(count), PlainSlots(count)
    for number, (move, what) in enumerate(moves):
        if move == "ask":
            plain.queue.append((number, what))
            desk.ask(number, (slots, Need(weight=what)))
        elif move == "give" and plain.held:
            name = sorted(plain.held)[what % len(plain.held)]
            del plain.held[name]
            desk.give(name)
        elif move == "leave" and plain.queue:
            name = plain.queue.pop(what % len(plain.queue))[0]
            desk.withdraw(name)
        elif move == "resize":
            plain.count = what
            slots.resize(what)
            desk.gate.serve(slots)
        before = sum(plain.held.values())
        plain.serve()
        assert desk.granted == plain.granted
        assert {name: desk.handed(name) for name in desk.holding} == {
            name: [w] for name, w in plain.held.items()
        }
        assert slots.taken == sum(plain.held.values())
        assert slots.taken <= max(before, slots.count)
        desk.check(slots)


@given(count=st.integers(1, 8), askers=st.integers(0, 20), order=st.randoms(use_true_random=False))
def test_the_peak_is_all_the_slots_and_never_one_more(count, askers, order):
    desk, slots = Desk(), Slots(count)
    for name in range(askers):
        desk.ask(name, slots)
    while desk.holding:
        assert slots.taken == min(count, len(desk.holding) + len(desk.waiting))
        desk.give(order.choice(sorted(desk.holding)))
    assert slots.peak == min(count, askers)
    assert desk.granted == list(range(askers))
    desk.check(slots)


def test_who_takes_all_is_alone_and_is_not_starved_by_those_who_take_one():
    desk, slots = Desk(), Slots(3)
    desk.ask("one", slots)
    desk.ask("two", slots)
    assert not desk.ask("all", (slots, Need(weight="all")))
    assert not desk.ask("three", slots)  # there is a slot, but it came later
    desk.give("one")
    assert desk.granted == ["one", "two"]
    desk.give("two")
    assert desk.granted == ["one", "two", "all"]
    assert slots.taken == 3
    desk.give("all")
    assert desk.granted[-1] == "three"


def test_a_weight_past_the_count_counts_as_all():
    desk, slots = Desk(), Slots(2)
    assert desk.ask("big", (slots, Need(weight=100)))
    assert slots.taken == 2
    assert not desk.ask("next", slots)
    desk.give("big")
    assert slots.taken == 1


def test_slots_that_are_held_when_the_number_shrinks_are_waited_for_and_never_revoked():
    desk, slots = Desk(), Slots(4)
    for name in range(4):
        desk.ask(name, slots)
    desk.ask("all", (slots, Need(weight="all")))
    slots.resize(2)
    desk.gate.serve(slots)
    assert slots.taken == 4
    for name in range(3):
        desk.give(name)
        assert "all" in desk.waiting
    desk.give(3)
    assert desk.handed("all") == [2]
    slots.resize(5)
    desk.give("all")  # gives back the two it took, not the five there are now
    assert slots.taken == 0


def test_more_slots_let_those_go_who_wait_once_the_line_is_served():
    desk, slots = Desk(), Slots(1)
    for name in range(4):
        desk.ask(name, slots)
    slots.resize(3)
    desk.gate.serve(slots)
    assert desk.granted == [0, 1, 2]


def test_a_full_set_of_slots_can_not_say_when_it_has_room():
    slots = Slots(1)
    assert slots.refusal(Need(), 0.0) is None
    slots.take(Need(), 0.0)
    assert slots.refusal(Need(), 0.0) == WHENEVER
    assert repr(slots) == "<Slots 1/1 taken>"


@pytest.mark.parametrize("count", [0, -1, 2.5, True, math.nan, "3", None])
def test_a_number_of_slots_is_a_whole_number_of_at_least_one(count):
    with pytest.raises(ValueError, match="Slots must be"):
        Slots(count)
    slots = Slots(2)
    with pytest.raises(ValueError, match="Slots must be"):
        slots.resize(count)
    assert slots.count == 2
