"""Slots: never more taken than exist, all taken if they are wanted, first come first served."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.limits.limit import WHENEVER, Need
from abreast.limits.slots import Slots
from tests.limits.desk import GateRecorder
from tests.properties import tried

WEIGHTS = st.integers(1, 6) | st.just("all")
MOVES = st.lists(
    st.tuples(st.just("ask"), WEIGHTS)
    | st.tuples(st.just("give"), st.integers(0, 9))
    | st.tuples(st.just("leave"), st.integers(0, 9))
    | st.tuples(st.just("resize"), st.integers(1, 5)),
    max_size=40,
)


class PlainSlots:
    """A model of slots: a number, a list of holders, and a queue."""

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
@tried(200)
def test_slots_are_handed_out_as_a_plain_queue_would(count, moves):
    recorder, slots, plain = GateRecorder(), Slots(count), PlainSlots(count)
    for number, (move, what) in enumerate(moves):
        if move == "ask":
            plain.queue.append((number, what))
            recorder.ask(number, (slots, Need(weight=what)))
        elif move == "give" and plain.held:
            name = sorted(plain.held)[what % len(plain.held)]
            del plain.held[name]
            recorder.give(name)
        elif move == "leave" and plain.queue:
            name = plain.queue.pop(what % len(plain.queue))[0]
            recorder.withdraw(name)
        elif move == "resize":
            plain.count = what
            slots.resize(what)
            recorder.gate.serve(slots)
        before = sum(plain.held.values())
        plain.serve()
        assert recorder.granted == plain.granted
        assert {name: recorder.received(name) for name in recorder.holding} == {
            name: [w] for name, w in plain.held.items()
        }
        assert slots.taken == sum(plain.held.values())
        assert slots.taken <= max(before, slots.count)
        recorder.check(slots)


@given(count=st.integers(1, 8), askers=st.integers(0, 20), order=st.randoms(use_true_random=False))
def test_the_peak_is_all_the_slots_and_never_one_more(count, askers, order):
    recorder, slots = GateRecorder(), Slots(count)
    for name in range(askers):
        recorder.ask(name, slots)
    while recorder.holding:
        assert slots.taken == min(count, len(recorder.holding) + len(recorder.waiting))
        recorder.give(order.choice(sorted(recorder.holding)))
    assert slots.peak == min(count, askers)
    assert recorder.granted == list(range(askers))
    recorder.check(slots)


def test_who_takes_all_is_alone_and_is_not_starved_by_those_who_take_one():
    recorder, slots = GateRecorder(), Slots(3)
    recorder.ask("one", slots)
    recorder.ask("two", slots)
    assert not recorder.ask("all", (slots, Need(weight="all")))
    assert not recorder.ask("three", slots)  # there is a slot, but it came later
    recorder.give("one")
    assert recorder.granted == ["one", "two"]
    recorder.give("two")
    assert recorder.granted == ["one", "two", "all"]
    assert slots.taken == 3
    recorder.give("all")
    assert recorder.granted[-1] == "three"


def test_a_weight_past_the_count_counts_as_all():
    recorder, slots = GateRecorder(), Slots(2)
    assert recorder.ask("big", (slots, Need(weight=100)))
    assert slots.taken == 2
    assert not recorder.ask("next", slots)
    recorder.give("big")
    assert slots.taken == 1


def test_slots_that_are_held_when_the_number_shrinks_are_waited_for_and_never_revoked():
    recorder, slots = GateRecorder(), Slots(4)
    for name in range(4):
        recorder.ask(name, slots)
    recorder.ask("all", (slots, Need(weight="all")))
    slots.resize(2)
    recorder.gate.serve(slots)
    assert slots.taken == 4
    for name in range(3):
        recorder.give(name)
        assert "all" in recorder.waiting
    recorder.give(3)
    assert recorder.received("all") == [2]
    slots.resize(5)
    recorder.give("all")  # gives back the two it took, not the present five
    assert slots.taken == 0


def test_more_slots_let_those_go_who_wait_once_the_line_is_served():
    recorder, slots = GateRecorder(), Slots(1)
    for name in range(4):
        recorder.ask(name, slots)
    slots.resize(3)
    recorder.gate.serve(slots)
    assert recorder.granted == [0, 1, 2]


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
