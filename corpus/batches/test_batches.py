import pytest
from original import batches


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([], 2), []),
        (([1, 2, 3, 4], 2), [[1, 2], [3, 4]]),
        (([9], 1), [[9]]),
    ],
)
def test_small(args, expected):
    assert list(batches(*args)) == expected


def test_large():
    args = (list(range(600)), 20)
    result = list(batches(*args))
    assert len(result) == 30


def test_refused():
    with pytest.raises(ValueError):
        list(batches([1], 0))
