import pytest
from original import gcd_all


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([4],), 4),
        (([4, 6],), 2),
        (([12, 18, 30],), 6),
    ],
)
def test_small(args, expected):
    assert gcd_all(*args) == expected


def test_large():
    args = ([30030 * n for n in range(1, 90)] + [7],)
    result = gcd_all(*args)
    assert result == 7
