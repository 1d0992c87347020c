"""Days from Monday to Friday, the last one not counted."""

from datetime import date, timedelta


def business_days(start: date, end: date) -> int:
    """Days from Monday to Friday, the last one not counted."""
    count = 0
    day = start
    while day < end:
        if day.strftime("%w") not in ("0", "6"):
            count += 1
        day = day + timedelta(days=1)
    return count
