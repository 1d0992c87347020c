"""What the reader of a language is given, and what it returns."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from abreast.jobs.plan.decompose.inventory import read_bytes


@dataclass(frozen=True, slots=True)
class SourceTree:
    """The contents of a tree's files, and the paths of all of them."""

    root: str
    paths: frozenset[str]

    def read(self, path: str) -> bytes:
        """The content of a file; raises `OSError`."""
        return read_bytes(f"{self.root}/{path}")

    def read_text(self, path: str) -> str:
        """The content as text; empty if the file can't be read."""
        try:
            return self.read(path).decode(errors="replace")
        except OSError:
            return ""


@dataclass(slots=True)
class LanguageImports:
    """The imports of the files of one language, as `Imports` has them; in any order."""

    edges: Mapping[str, Iterable[str]] = field(default_factory=dict)
    through: Mapping[str, Iterable[str]] = field(default_factory=dict)
    unread: list[tuple[str, str]] = field(default_factory=list)
