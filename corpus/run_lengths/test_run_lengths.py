import pytest
from original import run_lengths


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("",), []),
        (("aab",), [('a', 2), ('b', 1)]),
        (("zzz",), [('z', 3)]),
    ],
)
def test_small(args, expected):
    assert run_lengths(*args) == expected


def test_large():
    args = ("aaabccdddd" * 80,)
    result = run_lengths(*args)
    assert len(result) == 320
