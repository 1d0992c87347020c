import pytest
from original import common_words


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("", "a"), []),
        (("b a b", "a b"), ['b', 'a']),
        (("x y", "z"), []),
    ],
)
def test_small(args, expected):
    assert common_words(*args) == expected


def test_large():
    args = (" ".join(f"w{n}" for n in range(150)), " ".join(f"w{n}" for n in range(75, 225)))
    result = common_words(*args)
    assert len(result) == 75
