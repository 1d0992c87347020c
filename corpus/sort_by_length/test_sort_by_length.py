import pytest
from original import sort_by_length


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([],), []),
        ((["ccc", "a", "bb"],), ['a', 'bb', 'ccc']),
        ((["a", "bb", "cc", "d"],), ['a', 'd', 'bb', 'cc']),
    ],
)
def test_small(args, expected):
    assert sort_by_length(*args) == expected


def test_large():
    args = (["x" * (n * 7 % 23) for n in range(250)],)
    result = sort_by_length(*args)
    assert len(result) == 250
