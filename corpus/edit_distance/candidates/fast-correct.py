def edit_distance(one: str, other: str) -> int:
    if one == other:
        return 0
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        last = row
        for column, mine in enumerate(other):
            least = before[column] if letter == mine else before[column] + 1
            up = before[column + 1] + 1
            if up < least:
                least = up
            last += 1
            if last < least:
                least = last
            last = least
            now.append(least)
        before = now
    return before[-1]
