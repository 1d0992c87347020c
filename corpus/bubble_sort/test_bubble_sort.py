import pytest
from original import bubble_sort


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([],), []),
        (([3, 1, 2],), [1, 2, 3]),
        (([1, 1, 0],), [0, 1, 1]),
    ],
)
def test_small(args, expected):
    assert bubble_sort(*args) == expected


def test_large():
    args = ([(n * 37) % 101 for n in range(150)],)
    result = bubble_sort(*args)
    assert result == sorted(result)
