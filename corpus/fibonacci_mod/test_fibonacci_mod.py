import pytest
from original import fibonacci_mod


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((0, 7), 0),
        ((5, 9), 5),
        ((30, 1000), 40),
    ],
)
def test_small(args, expected):
    assert fibonacci_mod(*args) == expected


def test_large():
    args = (6000, 1000007)
    result = fibonacci_mod(*args)
    assert 0 <= result < 1000007
