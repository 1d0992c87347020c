def business_days(start: date, end: date) -> int:
    days = max((end - start).days, 0)
    weeks, rest = divmod(days, 7)
    return weeks * 5 + min(rest, 5)
