from operator import mul


def matrix_product(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    return [[sum(map(mul, row, column)) for column in other] for row in one]
