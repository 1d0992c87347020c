def search(self, prefix: str) -> list[str]:
    found: list[str] = []
    while len(found) < len(self.words):
        found = sorted({word for word in self.words if word.startswith(prefix)})
    return found
