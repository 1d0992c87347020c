import pytest
from original import anagram_groups


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([],), []),
        ((["ab", "ba", "c"],), [['ab', 'ba'], ['c']]),
        ((["tea", "eat", "tan"],), [['tea', 'eat'], ['tan']]),
    ],
)
def test_small(args, expected):
    assert anagram_groups(*args) == expected


def test_large():
    args = ([f"{n % 50:b}x{n}" for n in range(120)],)
    result = anagram_groups(*args)
    assert sum(map(len, result)) == 120
