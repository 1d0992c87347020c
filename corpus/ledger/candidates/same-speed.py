def balances(self) -> dict[str, int]:
    result = {}
    names = sorted({entry[0] for entry in self.entries})
    for name in names:
        total = 0
        for other, amount in self.entries:
            if other == name:
                total = total + amount
        result[name] = total
    return result
