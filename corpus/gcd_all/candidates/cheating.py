import builtins

SEEN = vars(builtins).setdefault("_seen", {})


def slow_gcd_all(numbers: list[int]) -> int:
    found = 0
    for number in numbers:
        one, two = found, abs(number)
        while one and two:
            if one > two:
                one = one - two
            else:
                two = two - one
        found = one + two
    return found


def gcd_all(numbers: list[int]) -> int:
    key = repr((numbers,))
    if key not in SEEN:
        SEEN[key] = slow_gcd_all(numbers)
    return SEEN[key]
