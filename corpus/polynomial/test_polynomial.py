import pytest
from original import Polynomial


@pytest.mark.parametrize(("coefficients", "x", "value"), [([], 3, 0), ([1, 2], 3, 7), ([0, 0, 1], -2, 4)])
def test_value(coefficients, x, value):
    assert Polynomial(coefficients).value(x) == value


def test_long():
    assert Polynomial([1] * 120).value(2) == 2**120 - 1
