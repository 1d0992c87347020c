def edit_distance(one: str, other: str) -> int:
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, mine in enumerate(other):
            cost = 0 if letter == mine else 2
            now.append(min(before[column] + cost, before[column + 1] + 1, now[-1] + 1))
        before = now
    return before[-1]
