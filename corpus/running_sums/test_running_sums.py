import pytest
from original import running_sums


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([1, 2, 3], 2), [3, 5]),
        (([5], 1), [5]),
        (([1, 1, 1, 1], 4), [4]),
    ],
)
def test_small(args, expected):
    assert running_sums(*args) == expected


def test_large():
    args = (list(range(500)), 40)
    result = running_sums(*args)
    assert len(result) == 461


def test_refused():
    with pytest.raises(ValueError):
        running_sums([1], 0)
