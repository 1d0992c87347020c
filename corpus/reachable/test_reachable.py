import pytest
from original import reachable


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (({"a": []}, "a"), ['a']),
        (({"a": ["b", "c"], "b": ["d"], "c": ["e"], "d": [], "e": []}, "a"), ['a', 'b', 'c', 'd', 'e']),
        (({"a": ["a"]}, "a"), ['a']),
    ],
)
def test_small(args, expected):
    assert reachable(*args) == expected


def test_large():
    args = ({f"n{n:03}": [f"n{m:03}" for m in range(n + 1, min(n + 4, 300))] for n in range(300)}, "n000")
    result = reachable(*args)
    assert len(result) == 300
