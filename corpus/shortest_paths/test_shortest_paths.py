import pytest
from original import shortest_paths


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (({"a": {}}, "a"), {'a': 0}),
        (({"a": {"b": 5, "c": 1}, "b": {}, "c": {"b": 1}}, "a"), {'a': 0, 'b': 2, 'c': 1}),
        (({"a": {"b": 2}, "b": {"a": 2}}, "b"), {'a': 2, 'b': 0}),
    ],
)
def test_small(args, expected):
    assert shortest_paths(*args) == expected


def test_large():
    args = ({f"n{n:03}": {f"n{m:03}": (n * m) % 7 + 1 for m in range(n + 1, min(n + 5, 70))} for n in range(70)}, "n000")
    result = shortest_paths(*args)
    assert len(result) == 70
