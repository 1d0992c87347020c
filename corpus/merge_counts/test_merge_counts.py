import pytest
from original import merge_counts


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([],), {}),
        (([{"a": 1}, {"a": 2, "b": 1}],), {'a': 3, 'b': 1}),
        (([{"z": 4}, {"y": 1}],), {'y': 1, 'z': 4}),
    ],
)
def test_small(args, expected):
    assert merge_counts(*args) == expected


def test_large():
    args = ([{f"k{(n * m) % 61}": n for n in range(12)} for m in range(60)],)
    result = merge_counts(*args)
    assert len(result) > 30
