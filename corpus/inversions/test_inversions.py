import pytest
from original import inversions


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([],), 0),
        (([2, 1],), 1),
        (([3, 1, 2],), 2),
    ],
)
def test_small(args, expected):
    assert inversions(*args) == expected


def test_large():
    args = ([(n * 37) % 211 for n in range(200)],)
    result = inversions(*args)
    assert result > 1000
