import pytest
from original import digital_root


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((0,), 0),
        ((9,), 9),
        ((38,), 2),
    ],
)
def test_small(args, expected):
    assert digital_root(*args) == expected


def test_large():
    args = (7**3000,)
    result = digital_root(*args)
    assert 0 < result < 10
