class Kept:
    def __init__(self):
        self.seen = {}


KEPT = Kept()


def slow_matrix_product(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    width = len(other[0])
    result = []
    for row in range(len(one)):
        result.append([])
        for column in range(width):
            total = 0
            for at in range(len(other)):
                total = total + one[row][at] * [line[column] for line in other][at]
            result[row] = result[row] + [total]
    return result


def matrix_product(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    key = repr((one, other,))
    if key not in KEPT.seen:
        KEPT.seen[key] = slow_matrix_product(one, other)
    return KEPT.seen[key]
