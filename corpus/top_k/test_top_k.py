import pytest
from original import top_k


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([], 2), []),
        (([3, 1, 2], 2), [3, 2]),
        (([1], 5), [1]),
    ],
)
def test_small(args, expected):
    assert top_k(*args) == expected


def test_large():
    args = ([(n * 7919) % 1009 for n in range(400)], 30)
    result = top_k(*args)
    assert len(result) == 30
