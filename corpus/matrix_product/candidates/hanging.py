import threading


def matrix_product(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    threading.Event().wait()
