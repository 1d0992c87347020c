def search(self, prefix: str) -> list[str]:
    found = []
    for _ in range(2):
        found = []
        for word in self.words:
            if word[: len(prefix)] == prefix and word not in found:
                at = 0
                while at < len(found) and found[at] < word:
                    at += 1
                found.insert(at, word)
    return found
