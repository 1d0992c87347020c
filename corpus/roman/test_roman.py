import pytest
from original import roman


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((0,), ''),
        ((5,), 'V'),
        ((27,), 'XXVII'),
        ((2026,), 'MMXXVI'),
    ],
)
def test_small(args, expected):
    assert roman(*args) == expected


def test_large():
    args = (3888,)
    result = roman(*args)
    assert result == "MMMDCCCLXXXVIII"
