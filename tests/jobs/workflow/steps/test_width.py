"""The width of a fan-out: any value of a file or an expression becomes a number, never an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.workflow.steps.values import WIDEST, as_width


@pytest.mark.parametrize(
    ("said", "width"),
    [
        (4, 4),
        ("4", 4),
        (" 4 ", 4),
        (4.0, 4),
        (4.9, 4),
        (True, 1),
        (False, 1),
        (None, 1),
        ("abc", 1),
        ("4.0", 1),
        ("", 1),
        (0, 1),
        (-1, 1),
        ("-3", 1),
        (float("inf"), 1),
        (float("-inf"), 1),
        (float("nan"), 1),
        ([], 1),
        ([4], 1),
        ({}, 1),
        (10**100, WIDEST),
        ("9" * 9000, 1),
        (WIDEST, WIDEST),
        (object(), 1),
        (b"4", 4),
    ],
)
def test_a_width_is_what_int_makes_of_it_between_one_and_the_widest(said, width):
    assert as_width(said) == width


class Hostile:
    def __int__(self):
        raise RuntimeError("no")


def test_an_object_that_raises_counts_as_one():
    assert as_width(Hostile()) == 1


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9)
)


@given(
    PLAIN | st.lists(PLAIN, max_size=2) | st.dictionaries(st.text(max_size=3), PLAIN, max_size=2)
)
def test_a_width_is_never_an_error(said):
    assert 1 <= as_width(said) <= WIDEST
