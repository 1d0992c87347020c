from datetime import date

import pytest
from original import month_lengths


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((2023,), [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]),
        ((2024,), [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]),
        ((1900,), [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]),
    ],
)
def test_small(args, expected):
    assert month_lengths(*args) == expected


def test_large():
    args = (2000,)
    result = month_lengths(*args)
    assert sum(result) == 366
