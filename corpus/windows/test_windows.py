import pytest
from original import windows


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([], 2), []),
        (([1, 2, 3], 2), [(1, 2), (2, 3)]),
        (([1], 0), []),
    ],
)
def test_small(args, expected):
    assert list(windows(*args)) == expected


def test_large():
    args = (list(range(400)), 5)
    result = list(windows(*args))
    assert len(result) == 396
