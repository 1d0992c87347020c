"""What `topological_sort` promises."""
# ruff: noqa: S101 - tests assert

import pytest
from topological_sort import topological_sort


def chain(length: int) -> dict[str, list[str]]:
    """Each needs the two before it."""
    return {
        f"n{at:03}": [f"n{one:03}" for one in range(max(0, at - 2), at)] for at in range(length)
    }


def test_what_is_needed_comes_first() -> None:
    assert topological_sort({"roof": ["walls"], "walls": ["floor"], "floor": []}) == [
        "floor",
        "walls",
        "roof",
    ]


def test_ties_are_in_the_order_of_the_alphabet() -> None:
    assert topological_sort({"b": [], "a": [], "c": ["b"]}) == ["a", "b", "c"]


def test_a_name_that_is_only_needed_is_there_too() -> None:
    assert topological_sort({"b": ["a"]}) == ["a", "b"]


@pytest.mark.parametrize("length", [1, 20, 90])
def test_a_chain(length: int) -> None:
    assert topological_sort(chain(length)) == sorted(chain(length))


def test_nothing() -> None:
    assert topological_sort({}) == []


def test_a_circle_is_an_error() -> None:
    with pytest.raises(ValueError, match="these need each other: a, b"):
        topological_sort({"a": ["b"], "b": ["a"], "c": []})
