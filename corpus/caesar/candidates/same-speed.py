def slow_caesar(text: str, shift: int) -> str:
    lower, upper = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    result = ""
    for letter in text:
        if letter in lower:
            result = result + lower[(lower.index(letter) + shift) % 26]
        elif letter in upper:
            result = result + upper[(upper.index(letter) + shift) % 26]
        else:
            result = result + letter
    return result


def caesar(text: str, shift: int) -> str:
    return slow_caesar(text, shift)
