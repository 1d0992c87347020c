import pytest
from original import has_cycle


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (({},), False),
        (({"a": ["b"], "b": ["a"]},), True),
        (({"a": ["b", "c"], "b": ["c"], "c": []},), False),
    ],
)
def test_small(args, expected):
    assert has_cycle(*args) == expected


def test_large():
    args = ({f"n{n:02}": [f"n{m:02}" for m in range(n + 1, min(n + 3, 12))] for n in range(12)},)
    result = has_cycle(*args)
    assert result is False
