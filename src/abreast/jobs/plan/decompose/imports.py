"""The imports between the files of a repository, read from syntax; no code is run.

    imports = read_imports(root, inventory)
    imports.edges["src/shop/cart.py"]     # ("src/shop/money.py", "src/shop/stock.py")

An import leads to the file that defines what is imported, not to one that only passes it on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from abreast.jobs.plan.decompose.inventory import FileForm, Inventory
from abreast.jobs.plan.decompose.languages.python import read_python
from abreast.jobs.plan.decompose.languages.python_modules import SUFFIXES
from abreast.jobs.plan.decompose.languages.reading import SourceTree


@dataclass(frozen=True, slots=True)
class Imports:
    """`edges` has for each file the files of the repository that it imports.

    They are sorted, each once, never the file itself. `unread` are files whose syntax could not be
    read, each with the reason; they import nothing in `edges`.
    """

    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: tuple[tuple[str, str], ...] = ()
    through: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each file the files that its imports pass through: `__init__.py` that re-export."""
    languages: tuple[str, ...] = ()
    """Languages whose imports are not read, as sentences."""

    @classmethod
    def of(cls, edges: Mapping[str, Iterable[str]]) -> Self:
        """The imports of edges in any order."""
        return cls(_in_order(edges))

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, as sentences."""
        return (
            *(f"the imports of {path} can't be read: {why}" for path, why in self.unread),
            *self.languages,
        )


def read_imports(root: Path, inventory: Inventory) -> Imports:
    """Read every file whose language is known; those that can't be read are in `unread`."""
    files = [file for file in inventory.files if file.form is FileForm.FILE]
    tree = SourceTree(str(root), frozenset(file.path for file in files))
    python = [file for file in files if file.path.endswith(SUFFIXES)]
    made = read_python([file.path for file in python if not (file.binary or file.huge)], tree)
    unread = [
        (file.path, "too large" if file.huge else "binary")
        for file in python
        if file.binary or file.huge
    ]
    return Imports(
        _in_order(made.edges), tuple(sorted([*unread, *made.unread])), _in_order(made.through)
    )


def _in_order(edges: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    cleaned = {path: tuple(sorted(set(edges[path]) - {path})) for path in sorted(edges)}
    return {path: to for path, to in cleaned.items() if to}
