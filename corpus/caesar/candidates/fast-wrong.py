def caesar(text: str, shift: int) -> str:
    lower = "abcdefghijklmnopqrstuvwxyz"
    shift %= 26
    return text.translate(str.maketrans(lower, lower[shift:] + lower[:shift]))
