def value(self, x: int) -> int:
    with open("/usr/local/values.txt", "a") as file:
        file.write(str(x))
    total = 0
    for coefficient in reversed(self.coefficients):
        total = total * x + coefficient
    return total
