def balances(self) -> dict[str, int]:
    self.entries.sort()
    result: dict[str, int] = {}
    for name, amount in self.entries:
        result[name] = result.get(name, 0) + amount
    return result
