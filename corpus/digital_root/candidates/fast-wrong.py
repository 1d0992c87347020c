def digital_root(number: int) -> int:
    return number if number < 10 else number % 9
