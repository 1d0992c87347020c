def balances(self) -> dict[str, int]:
    result: dict[str, int] = {}
    for name, amount in self.entries:
        result[name] = result.get(name, 0) + amount
    return dict(sorted(result.items()))
