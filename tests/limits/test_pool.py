"""A pool hands each of its things to one holder at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.limits.pool import Pool
from tests.limits.desk import Desk


@given(size=st.integers(1, 5), askers=st.integers(0, 15), order=st.randoms(use_true_random=False))
def test_every_holder_has_a_thing_of_its_own_and_all_things_are_out_when_wanted(
    size, askers, order
):
    desk, pool = Desk(), Pool([object() for _ in range(size)])
    for name in range(askers):
        desk.ask(name, pool)
    while desk.holding:
        things = [pool.thing(desk.handed(name)[0]) for name in desk.holding]
        assert (
            len({id(thing) for thing in things})
            == len(things)
            == min(size, len(desk.holding) + len(desk.waiting))
        )
        assert all(any(thing is one for one in pool.things) for thing in things)
        desk.check(pool)
        desk.give(order.choice(sorted(desk.holding)))
    assert desk.granted == list(range(askers))
    assert pool.peak == min(size, askers)
    desk.check(pool)


def test_one_more_than_there_are_things_waits_and_gets_the_one_that_comes_back():
    desk, pool = Desk(), Pool("abc")
    for name in range(3):
        assert desk.ask(name, pool)
    assert not desk.ask("fourth", pool)
    assert repr(pool) == "<Pool 3/3 out>"
    desk.give(1)
    assert desk.granted == [0, 1, 2, "fourth"]
    assert pool.thing(desk.handed("fourth")[0]) == "b"


def test_the_first_free_thing_in_the_order_given_is_handed_over():
    desk, pool = Desk(), Pool("abc")
    for name in range(3):
        desk.ask(name, pool)
    for name in (2, 0):
        desk.give(name)
    desk.ask("next", pool)
    assert pool.thing(desk.handed("next")[0]) == "a"


def test_equal_things_are_two_things():
    desk, pool = Desk(), Pool(["same", "same"])
    assert desk.ask("one", pool)
    assert desk.ask("two", pool)
    assert desk.handed("one") != desk.handed("two")


def test_a_thing_may_be_none_and_no_place_is_no_thing():
    pool: Pool[None] = Pool([None])
    assert pool.thing(0) is None
    assert pool.thing(None) is None


def test_a_pool_without_things_is_refused():
    with pytest.raises(ValueError, match="at least one thing"):
        Pool([])
