import pytest
from original import median


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([1],), 1.0),
        (([3, 1, 2],), 2.0),
        (([5, 9, 7],), 7.0),
    ],
)
def test_small(args, expected):
    assert median(*args) == expected


def test_large():
    args = ([(n * 7919) % 1009 for n in range(301)],)
    result = median(*args)
    assert 0 <= result <= 1009


def test_refused():
    with pytest.raises(ValueError):
        median([])
