import pytest
from original import pairs_with_sum


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([], 3), 0),
        (([1, 2, 3], 4), 1),
        (([5, 5], 10), 1),
    ],
)
def test_small(args, expected):
    assert pairs_with_sum(*args) == expected


def test_large():
    args = ([n % 97 for n in range(250)], 50)
    result = pairs_with_sum(*args)
    assert result > 100
