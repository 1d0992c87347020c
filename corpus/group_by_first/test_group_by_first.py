import pytest
from original import group_by_first


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([],), {}),
        ((["b", "a", "bc"],), {'b': ['b', 'bc'], 'a': ['a']}),
        ((["x", "", "xy"],), {'x': ['x', 'xy']}),
    ],
)
def test_small(args, expected):
    assert group_by_first(*args) == expected


def test_large():
    args = ([chr(97 + n % 26) + str(n) for n in range(200)],)
    result = group_by_first(*args)
    assert len(result) == 26
