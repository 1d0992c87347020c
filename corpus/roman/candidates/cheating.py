SEEN = {}


def slow_roman(number: int) -> str:
    text = ""
    for _ in range(number):
        text = text + "I"
    for many, letter in (("IIIII", "V"), ("VV", "X"), ("XXXXX", "L"), ("LL", "C"), ("CCCCC", "D"), ("DD", "M")):
        text = text.replace(many, letter)
    for many, letters in (("DCCCC", "CM"), ("CCCC", "CD"), ("LXXXX", "XC"), ("XXXX", "XL"), ("VIIII", "IX"), ("IIII", "IV")):
        text = text.replace(many, letters)
    return text


def roman(number: int) -> str:
    key = repr((number,))
    if key not in SEEN:
        SEEN[key] = slow_roman(number)
    return SEEN[key]
