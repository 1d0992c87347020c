def roman(number: int) -> str:
    text = "M" * min(max(number, 0) // 1000, 9)
    rest = max(number, 0) % 1000
    for value, letters in (
        (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"),
        (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
    ):
        text += letters * (rest // value)
        rest %= value
    return text
