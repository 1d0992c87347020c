def balances(self) -> dict[str, int]:
    result = {}
    names = {entry[0] for entry in self.entries}
    for name in sorted(names):
        result[name] = 0
        for other, amount in self.entries:
            if name == other:
                result[name] = amount + result[name]
    return result
