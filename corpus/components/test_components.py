import pytest
from original import components


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (({},), []),
        (({"a": ["b"], "b": [], "c": []},), [['a', 'b'], ['c']]),
        (({"a": [], "b": ["c"], "c": ["b"]},), [['a'], ['b', 'c']]),
    ],
)
def test_small(args, expected):
    assert components(*args) == expected


def test_large():
    args = ({f"n{n:03}": [f"n{(n // 6) * 6:03}"] for n in range(120)},)
    result = components(*args)
    assert len(result) == 20
