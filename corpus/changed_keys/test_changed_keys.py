import pytest
from original import changed_keys


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (({}, {}), []),
        (({"a": 1, "b": 2}, {"b": 3, "c": 1}), [('a', 'removed'), ('b', 'changed'), ('c', 'added')]),
        (({"a": 1}, {"a": 1}), []),
    ],
)
def test_small(args, expected):
    assert changed_keys(*args) == expected


def test_large():
    args = ({f"k{n}": n for n in range(150)}, {f"k{n}": n % 100 for n in range(50, 200)})
    result = changed_keys(*args)
    assert len(result) > 100
