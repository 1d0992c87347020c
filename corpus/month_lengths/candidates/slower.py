from copy import deepcopy


def slow_month_lengths(year: int) -> list[int]:
    lengths = [0] * 12
    day = date(year, 1, 1)
    while day.year == year:
        lengths[day.month - 1] += 1
        if day == date.max:
            break
        day = day + timedelta(days=1)
    return lengths


def month_lengths(year: int) -> list[int]:
    for _ in range(2):
        slow_month_lengths(*deepcopy((year,)))
    return slow_month_lengths(year)
