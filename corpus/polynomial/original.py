"""Polynomials with whole coefficients, the lowest first."""


class Polynomial:
    def __init__(self, coefficients: list[int]) -> None:
        self.coefficients = coefficients

    def value(self, x: int) -> int:
        """The value at x."""
        total = 0
        for power, coefficient in enumerate(self.coefficients):
            term = coefficient
            for _ in range(power):
                term = term * x
            total = total + term
        return total
