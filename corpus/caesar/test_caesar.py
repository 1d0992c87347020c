import pytest
from original import caesar


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("", 3), ''),
        (("Az, z", 1), 'Ba, a'),
        (("hello", -2), 'fcjjm'),
    ],
)
def test_small(args, expected):
    assert caesar(*args) == expected


def test_large():
    args = ("The quick brown fox. " * 60, 7)
    result = caesar(*args)
    assert len(result) == 1320
