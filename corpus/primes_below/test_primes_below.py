import pytest
from original import primes_below


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((0,), []),
        ((3,), [2]),
        ((12,), [2, 3, 5, 7, 11]),
    ],
)
def test_small(args, expected):
    assert primes_below(*args) == expected


def test_large():
    args = (700,)
    result = primes_below(*args)
    assert len(result) == 125
