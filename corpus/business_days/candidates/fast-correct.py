def business_days(start: date, end: date) -> int:
    days = max((end - start).days, 0)
    weeks, rest = divmod(days, 7)
    first = start.weekday()
    return weeks * 5 + sum((first + at) % 7 < 5 for at in range(rest))
