import pytest
from original import divisors


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((0,), []),
        ((6,), [1, 2, 3, 6]),
        ((7,), [1, 7]),
    ],
)
def test_small(args, expected):
    assert divisors(*args) == expected


def test_large():
    args = (9973 * 2,)
    result = divisors(*args)
    assert len(result) == 4
