def longest_palindrome(text: str) -> str:
    best_start, best_length = 0, 0
    for centre in range(2 * len(text) - 1):
        left = centre // 2
        right = left + centre % 2
        while left >= 0 and right < len(text) and text[left] == text[right]:
            left -= 1
            right += 1
        length = right - left - 1
        if length > best_length or (length == best_length and left + 1 < best_start):
            best_start, best_length = left + 1, length
    return text[best_start : best_start + best_length]
