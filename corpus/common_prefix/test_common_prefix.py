import pytest
from original import common_prefix


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([],), ''),
        ((["abc", "abd"],), 'ab'),
        ((["a", "b"],), ''),
    ],
)
def test_small(args, expected):
    assert common_prefix(*args) == expected


def test_large():
    args = (["same" * 20 + str(n) for n in range(60)],)
    result = common_prefix(*args)
    assert result.startswith("same" * 20)
