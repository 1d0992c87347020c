def longest_palindrome(text: str) -> str:
    best = ""
    for centre in range(2 * len(text) - 1):
        left = centre // 2
        right = left + centre % 2
        while left >= 0 and right < len(text) and text[left] == text[right]:
            left -= 1
            right += 1
        if right - left - 1 >= len(best):
            best = text[left + 1 : right]
    return best
