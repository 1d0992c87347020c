from operator import mul


def matrix_product(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    columns = list(zip(*other))
    return [[sum(map(mul, row, column)) for column in columns] for row in one]
