def month_lengths(year: int) -> list[int]:
    date(year, 1, 1)
    return [31, 29 if year % 4 == 0 else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
