import pytest
from original import longest_palindrome


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("",), ''),
        (("abc",), 'a'),
        (("xabbay",), 'abba'),
        (("aabb",), 'aa'),
    ],
)
def test_small(args, expected):
    assert longest_palindrome(*args) == expected


def test_large():
    args = ("abcdefg" * 8 + "noon",)
    result = longest_palindrome(*args)
    assert result == "noon"
