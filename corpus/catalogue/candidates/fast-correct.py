def search(self, prefix: str) -> list[str]:
    return sorted({word for word in self.words if word.startswith(prefix)})
