"""How long each month of a year is."""

from datetime import date, timedelta


def month_lengths(year: int) -> list[int]:
    """How long each month of a year is."""
    lengths = [0] * 12
    day = date(year, 1, 1)
    while day.year == year:
        lengths[day.month - 1] += 1
        if day == date.max:
            break
        day = day + timedelta(days=1)
    return lengths
