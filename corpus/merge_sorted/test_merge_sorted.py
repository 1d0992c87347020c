import pytest
from original import merge_sorted


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([], []), []),
        (([1, 4], [2, 3]), [1, 2, 3, 4]),
        (([5], []), [5]),
    ],
)
def test_small(args, expected):
    assert merge_sorted(*args) == expected


def test_large():
    args = (list(range(0, 600, 2)), list(range(1, 600, 2)))
    result = merge_sorted(*args)
    assert result == list(range(600))
