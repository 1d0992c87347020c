"""Rows by columns."""

def matrix_product(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    """Rows by columns."""
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
