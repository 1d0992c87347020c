def digital_root(number: int) -> int:
    return number if number < 10 else 1 + (number - 1) % 9
