import pytest
from original import word_counts


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("",), {}),
        (("a",), {'a': 1}),
        (("b a b",), {'b': 2, 'a': 1}),
    ],
)
def test_small(args, expected):
    assert word_counts(*args) == expected


def test_large():
    args = (" ".join(f"w{n % 90}" for n in range(900)),)
    result = word_counts(*args)
    assert sum(result.values()) == 900
