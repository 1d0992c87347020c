import pytest
from original import flatten


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (({},), {}),
        (({"a": {"b": 1}, "c": 2},), {'a.b': 1, 'c': 2}),
        (({"a": 1}, "x."), {'x.a': 1}),
        (({"a": {"b": {"c": 3}}},), {'a.b.c': 3}),
    ],
)
def test_small(args, expected):
    assert flatten(*args) == expected


def test_large():
    args = ({f"a{n}": {f"b{m}": m for m in range(12)} for n in range(30)},)
    result = flatten(*args)
    assert len(result) == 360
