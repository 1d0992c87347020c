"""Words to look up."""


class Catalogue:
    def __init__(self, words: list[str]) -> None:
        self.words = words

    def search(self, prefix: str) -> list[str]:
        """The words that begin so, in order, each once."""
        found = []
        for word in self.words:
            if word[: len(prefix)] == prefix and word not in found:
                at = 0
                while at < len(found) and found[at] < word:
                    at += 1
                found.insert(at, word)
        return found
