import pytest
from original import topological


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (({},), []),
        (({"a": ["b"], "b": []},), ['a', 'b']),
        (({"c": ["a"], "b": [], "a": ["d"], "d": []},), ['b', 'c', 'a', 'd']),
    ],
)
def test_small(args, expected):
    assert topological(*args) == expected


def test_large():
    args = ({f"n{n:03}": [f"n{m:03}" for m in range(n + 1, min(n + 4, 80))] for n in range(80)},)
    result = topological(*args)
    assert result == sorted(result)


def test_refused():
    with pytest.raises(ValueError):
        topological({"a": ["b"], "b": ["a"]})
