from copy import deepcopy


def slow_digital_root(number: int) -> int:
    while number > 9:
        total = 0
        for digit in str(number):
            total = total + int(digit)
        number = total
    return number


def digital_root(number: int) -> int:
    for _ in range(2):
        slow_digital_root(*deepcopy((number,)))
    return slow_digital_root(number)
