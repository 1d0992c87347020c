import pytest
from original import unique


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([],), []),
        ((["a", "b", "c"],), ['a', 'b', 'c']),
        ((["x", "x", "y"],), ['x', 'y']),
    ],
)
def test_small(args, expected):
    assert list(unique(*args)) == expected


def test_large():
    args = ([f"w{n}" for n in range(250)],)
    result = list(unique(*args))
    assert len(result) == 250
