"""A pool lends each of its things to one holder at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.limits.pool import Pool
from tests.limits.desk import GateRecorder


@given(size=st.integers(1, 5), askers=st.integers(0, 15), order=st.randoms(use_true_random=False))
def test_every_holder_has_a_thing_of_its_own_and_all_things_are_out_when_wanted(
    size, askers, order
):
    recorder, pool = GateRecorder(), Pool([object() for _ in range(size)])
    for name in range(askers):
        recorder.ask(name, pool)
    while recorder.holding:
        things = [pool.thing(recorder.received(name)[0]) for name in recorder.holding]
        assert (
            len({id(thing) for thing in things})
            == len(things)
            == min(size, len(recorder.holding) + len(recorder.waiting))
        )
        assert all(any(thing is one for one in pool.things) for thing in things)
        recorder.check(pool)
        recorder.give(order.choice(sorted(recorder.holding)))
    assert recorder.granted == list(range(askers))
    assert pool.peak == min(size, askers)
    recorder.check(pool)


def test_one_more_than_there_are_things_waits_and_gets_the_one_that_comes_back():
    recorder, pool = GateRecorder(), Pool("abc")
    for name in range(3):
        assert recorder.ask(name, pool)
    assert not recorder.ask("fourth", pool)
    assert repr(pool) == "<Pool 3/3 out>"
    recorder.give(1)
    assert recorder.granted == [0, 1, 2, "fourth"]
    assert pool.thing(recorder.received("fourth")[0]) == "b"


def test_the_first_free_thing_in_the_order_given_is_handed_over():
    recorder, pool = GateRecorder(), Pool("abc")
    for name in range(3):
        recorder.ask(name, pool)
    for name in (2, 0):
        recorder.give(name)
    recorder.ask("next", pool)
    assert pool.thing(recorder.received("next")[0]) == "a"


def test_equal_things_are_two_things():
    recorder, pool = GateRecorder(), Pool(["same", "same"])
    assert recorder.ask("one", pool)
    assert recorder.ask("two", pool)
    assert recorder.received("one") != recorder.received("two")


def test_a_thing_may_be_none_and_no_place_is_no_thing():
    pool: Pool[None] = Pool([None])
    assert pool.thing(0) is None
    assert pool.thing(None) is None


def test_a_pool_without_things_is_refused():
    with pytest.raises(ValueError, match="at least one thing"):
        Pool([])
