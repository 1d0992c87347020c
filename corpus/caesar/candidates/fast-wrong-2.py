def caesar(text: str, shift: int) -> str:
    moved = []
    for letter in text:
        if letter.islower():
            moved.append(chr((ord(letter) - 97 + shift) % 26 + 97))
        elif letter.isupper():
            moved.append(chr((ord(letter) - 65 + shift) % 26 + 65))
        else:
            moved.append(letter)
    return "".join(moved)
