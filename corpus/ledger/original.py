"""What everybody has."""


class Ledger:
    def __init__(self, entries: list[tuple[str, int]]) -> None:
        self.entries = entries

    def balances(self) -> dict[str, int]:
        """By name, what all entries add up to."""
        result = {}
        for name in sorted({name for name, _ in self.entries}):
            result[name] = 0
            for other, amount in self.entries:
                if other == name:
                    result[name] = result[name] + amount
        return result
