"""The sum of the digits, of that again, until one digit is left."""

def digital_root(number: int) -> int:
    """The sum of the digits, of that again, until one digit is left."""
    while number > 9:
        total = 0
        for digit in str(number):
            total = total + int(digit)
        number = total
    return number
