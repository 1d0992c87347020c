"""Lanes: names for sets of limits, the parent's and the lane's own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.limits.budget import Budget
from abreast.limits.lane import Lanes, weights_of
from abreast.limits.limit import Need
from abreast.limits.pool import Pool
from abreast.limits.rate import Rate
from abreast.limits.slots import Slots


def test_a_lane_is_one_limit_or_several():
    slots, rate = Slots(2), Rate(60)
    lanes = Lanes({"one": slots, "two": [slots, rate], "three": (rate,), "free": []})
    assert lanes.limits("one") == (slots,)
    assert lanes.limits("two") == (slots, rate)
    assert lanes.limits("three") == (rate,)
    assert lanes.limits("free") == ()
    assert lanes.names == ("one", "two", "three", "free")


def test_a_childs_lane_holds_its_parents_limits_and_its_own():
    outer, inner, other = Slots(8), Slots(2), Rate(60)
    parent = Lanes({"openai": outer})
    child = Lanes({"openai": inner, "local": other}, parent=parent)
    assert child.limits("openai") == (outer, inner)
    assert child.names == ("openai", "local")
    assert parent.limits("openai") == (outer,)
    assert parent.names == ("openai",)
    assert Lanes(parent=child).limits("openai") == (outer, inner)


def test_budgets_add_up_from_the_outermost_in():
    outer, inner = Budget(requests=9), Budget(requests=3)
    parent = Lanes(budget=outer)
    assert Lanes().budgets == ()
    assert parent.budgets == (outer,)
    assert Lanes(parent=parent).budgets == (outer,)
    assert Lanes(budget=inner, parent=parent).budgets == (outer, inner)


@pytest.mark.parametrize("known", [(), ("b", "a")])
def test_a_lane_that_is_not_there_is_an_error_that_lists_those_that_are(known):
    lanes = Lanes({name: Slots(1) for name in known})
    with pytest.raises(
        ValueError,
        match=f"no lane 'c'; lanes here: {', '.join(sorted(known)) or 'none are declared'}",
    ):
        lanes.limits("c")
    with pytest.raises(ValueError, match="no lane 'c'"):
        lanes.needs([("c", 1)])


@pytest.mark.parametrize("limit", [8, None, "eight", [Slots(1), 8]])
def test_a_lane_of_something_else_than_limits_is_refused_by_name(limit):
    with pytest.raises(TypeError, match="lane 'openai' needs limits such as Slots"):
        Lanes({"openai": limit})


def test_needs_are_each_limit_once_with_its_weight_and_the_budgets_after_them():
    slots, rate, pool, budget = Slots(4), Rate(60), Pool("ab"), Budget(requests=9)
    lanes = Lanes({"openai": [slots, rate], "tree": pool}, budget=budget)
    assert lanes.needs([("openai", 1), ("tree", 1)]) == (
        ("openai", slots, Need()),
        ("openai", rate, Need()),
        ("tree", pool, Need()),
        ("budget", budget, Need()),
    )
    assert lanes.needs([("openai", "all")])[0] == ("openai", slots, Need(weight="all"))
    assert Lanes().needs([]) == ()


@pytest.mark.parametrize(
    ("one", "other", "heavier"),
    [(1, "all", "all"), ("all", 1, "all"), (1, 3, 3), (3, 2, 3), (2, 2, 2)],
)
def test_a_limit_that_two_lanes_share_is_asked_for_once_at_the_heavier_weight(one, other, heavier):
    shared = Slots(4)
    lanes = Lanes({"a": shared, "b": shared})
    assert [need.weight for _, _, need in lanes.needs([("a", one), ("b", other)])] == [heavier]


def test_a_budget_that_is_also_a_lane_is_charged_once():
    budget = Budget(requests=9)
    assert len(Lanes({"paid": budget}, budget=budget).needs([("paid", 1)])) == 1


@given(names=st.lists(st.text(min_size=1), unique=True))
def test_what_is_held_by_name_weighs_one(names):
    assert weights_of(names) == tuple((name, 1) for name in names)
    assert weights_of(dict.fromkeys(names, 1)) == weights_of(names)


def test_what_is_held_has_one_form():
    assert weights_of(None) == ()
    assert weights_of("machine") == (("machine", 1),)
    assert weights_of({"machine": "all", "openai": 2}) == (("machine", "all"), ("openai", 2))


@pytest.mark.parametrize("weight", [0, -1, 2.5, True, math.nan, "3", "ALL", None])
def test_a_weight_is_a_whole_number_or_all(weight):
    with pytest.raises(ValueError, match="the weight of 'machine' must be"):
        weights_of({"machine": weight})
