def month_lengths(year: int) -> list[int]:
    leap = date(year, 3, 1).toordinal() - date(year, 2, 1).toordinal()
    return [31, leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
