def balances(self) -> dict[str, int]:
    if not hasattr(self, "_kept"):
        result: dict[str, int] = {}
        for name, amount in self.entries:
            result[name] = result.get(name, 0) + amount
        self._kept = dict(sorted(result.items()))
    return dict(self._kept)
