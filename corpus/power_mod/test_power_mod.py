import pytest
from original import power_mod


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((2, 10, 1000), 24),
        ((3, 0, 7), 1),
        ((5, 3, 13), 8),
    ],
)
def test_small(args, expected):
    assert power_mod(*args) == expected


def test_large():
    args = (12345, 4000, 1000003)
    result = power_mod(*args)
    assert 0 <= result < 1000003
