import pytest
from original import invert


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (({},), {}),
        (({"a": 1, "b": 2},), {1: ['a'], 2: ['b']}),
        (({"a": 1, "b": 2, "c": 1},), {1: ['a', 'c'], 2: ['b']}),
    ],
)
def test_small(args, expected):
    assert invert(*args) == expected


def test_large():
    args = ({f"k{n}": n % 40 for n in range(200)},)
    result = invert(*args)
    assert len(result) == 40
