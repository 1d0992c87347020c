from datetime import date

import pytest
from original import business_days


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((date(2026, 3, 2), date(2026, 3, 9)), 5),
        ((date(2026, 3, 2), date(2026, 3, 4)), 2),
        ((date(2026, 3, 2), date(2026, 3, 1)), 0),
    ],
)
def test_small(args, expected):
    assert business_days(*args) == expected


def test_large():
    args = (date(2024, 1, 1), date(2026, 1, 1))
    result = business_days(*args)
    assert result > 500
