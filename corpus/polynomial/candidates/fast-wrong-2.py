def value(self, x: int) -> int:
    total = 0.0
    for coefficient in reversed(self.coefficients):
        total = total * x + coefficient
    return int(total)
