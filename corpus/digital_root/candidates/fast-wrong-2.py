def digital_root(number: int) -> int:
    if number < 10:
        return number
    return int((float(number) - 1) % 9) + 1
