import pytest
from original import matrix_product


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (([[2]], [[3]]), [[6]]),
        (([[1, 2], [3, 4]], [[0, 1], [1, 0]]), [[2, 1], [4, 3]]),
        (([[1, 0], [0, 1]], [[5, 6], [7, 8]]), [[5, 6], [7, 8]]),
    ],
)
def test_small(args, expected):
    assert matrix_product(*args) == expected


def test_large():
    args = ([[(n * m) % 11 for n in range(14)] for m in range(14)], [[(n + m) % 7 for n in range(14)] for m in range(14)])
    result = matrix_product(*args)
    assert len(result) == 14
