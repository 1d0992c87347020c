def slow_edit_distance(one: str, other: str) -> int:
    table = {}
    for row in range(len(one) + 1):
        for column in range(len(other) + 1):
            if row == 0 or column == 0:
                table[(row, column)] = max(row, column)
                continue
            choices = [table[(row - 1, column)] + 1]
            choices.append(table[(row, column - 1)] + 1)
            choices.append(table[(row - 1, column - 1)] + (0 if one[row - 1] == other[column - 1] else 1))
            table[(row, column)] = sorted(choices)[0]
    return table[(len(one), len(other))]


def edit_distance(one: str, other: str) -> int:
    return slow_edit_distance(one, other)
