"""What divides all of them."""

def gcd_all(numbers: list[int]) -> int:
    """What divides all of them."""
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
