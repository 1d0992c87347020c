"""Keys and paths: every item has a unique name, and can be found again by it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from abreast.core.item import Item, escape, join_path, position_key, unescape

# Mostly characters that escaping uses, so that a collision would be found.
PARTS = st.text(st.sampled_from("%25Ff/a")) | st.text()
PATHS = st.lists(PARTS, min_size=1, max_size=4)


@given(part=PARTS)
@example(part="%2F")
@example(part="%252F")
@example(part="/%25/")
def test_what_was_escaped_comes_back(part):
    assert unescape(escape(part)) == part


@given(part=PARTS)
def test_an_escaped_part_holds_no_slash(part):
    assert "/" not in escape(part)


@given(one=PARTS, other=PARTS)
def test_two_parts_are_escaped_alike_only_if_they_are_equal(one, other):
    assert (escape(one) == escape(other)) == (one == other)


@given(parts=PATHS)
def test_a_path_can_be_taken_apart_again(parts):
    assert [unescape(part) for part in join_path(*parts).split("/")] == parts


@given(one=PATHS, other=PATHS)
def test_paths_never_collide(one, other):
    assert (join_path(*one) == join_path(*other)) == (one == other)


def test_a_part_without_slash_or_percent_stays_as_it_is():
    assert join_path("summaries", "summarise", "0007") == "summaries/summarise/0007"


@given(one=st.integers(0, 10**9), other=st.integers(0, 10**9))
def test_positions_have_keys_of_their_own(one, other):
    assert (position_key(one) == position_key(other)) == (one == other)


@given(one=st.integers(0, 9999), other=st.integers(0, 9999))
def test_position_keys_sort_as_the_numbers_do_within_four_digits(one, other):
    assert (position_key(one) < position_key(other)) == (one < other)


@pytest.mark.parametrize(
    ("index", "key"), [(0, "0000"), (7, "0007"), (999, "0999"), (1000, "1000"), (12345, "12345")]
)
def test_a_position_is_padded_to_four_digits(index, key):
    assert position_key(index) == key


def test_an_item_is_a_value():
    item = Item("home", "/", lane="slow")
    assert item == Item("home", "/", "slow")
    assert Item("home", "/").lane is None
    with pytest.raises(AttributeError):
        item.key = "news"
