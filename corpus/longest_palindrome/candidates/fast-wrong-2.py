def longest_palindrome(text: str) -> str:
    best = ""
    plain = text.lower() if len(text.lower()) == len(text) else text
    for middle in range(len(plain)):
        for start, end in ((middle, middle + 1), (middle, middle + 2)):
            while start >= 0 and end <= len(plain) and plain[start] == plain[end - 1]:
                if end - start > len(best):
                    best = text[start:end]
                start, end = start - 1, end + 1
    return best
