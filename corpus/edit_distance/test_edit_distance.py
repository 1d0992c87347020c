import pytest
from original import edit_distance


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("", ""), 0),
        (("kitten", "sitting"), 3),
        (("abc", ""), 3),
    ],
)
def test_small(args, expected):
    assert edit_distance(*args) == expected


def test_large():
    args = ("kitten on the mat" * 2, "sitting at the map" * 2)
    result = edit_distance(*args)
    assert 0 < result < 40
