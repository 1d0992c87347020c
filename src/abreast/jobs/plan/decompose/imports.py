"""The imports between the files of a repository, read from syntax; no code is run.

    imports = read_imports(root, inventory)
    imports.edges["src/shop/cart.py"]     # ("src/shop/money.py", "src/shop/stock.py")

An import leads to the file that defines what is imported, not to one that only passes it on. Files
of languages that are not read have no edges, and are divided by their directories and names alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Self

from abreast.jobs.plan.decompose.inventory import FileEntry, FileForm, Inventory
from abreast.jobs.plan.decompose.languages import go, java, javascript, python, python_modules, rust
from abreast.jobs.plan.decompose.languages.reading import LanguageImports, SourceTree
from abreast.jobs.plan.decompose.languages.syntax import can_parse
from abreast.system.installation import install_hint


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


class _Language(NamedTuple):
    endings: tuple[str, ...]
    read: Callable[[Sequence[str], SourceTree], LanguageImports]
    grammars: tuple[str, ...] = ()
    """Those that must be installed."""


_LANGUAGES: Final = (
    _Language(python_modules.SUFFIXES, python.read_python),
    _Language(javascript.ENDINGS, javascript.read_javascript, ("javascript", "typescript", "tsx")),
    _Language(go.ENDINGS, go.read_go, ("go",)),
    _Language(rust.ENDINGS, rust.read_rust, ("rust",)),
    _Language(java.ENDINGS, java.read_java, ("java",)),
)
_OTHER_LANGUAGES: Final = (
    ".c .cc .cpp .cs .cxx .dart .ex .exs .f90 .h .hpp .hs .jl .kt .lua .m .ml .mm .php .pl .pyx .r"
    " .rb .scala .svelte .swift .vue .zig"
)


def read_imports(root: Path, inventory: Inventory) -> Imports:
    """Read every file of a known language; those that can't be read are in `unread`."""
    files = [file for file in inventory.files if file.form is FileForm.FILE]
    tree = SourceTree(str(root), frozenset(file.path for file in files))
    by_ending: dict[str, list[FileEntry]] = {}
    for file in files:
        by_ending.setdefault(f".{file.path.rpartition('.')[2]}", []).append(file)
    edges: dict[str, Iterable[str]] = {}
    through: dict[str, Iterable[str]] = {}
    unread: list[tuple[str, str]] = []
    missing: list[str] = []
    for language in _LANGUAGES:
        own = [file for ending in language.endings for file in by_ending.get(ending, ())]
        if not own:
            continue
        if not all(map(can_parse, language.grammars)):
            missing += [ending for ending in language.endings if ending in by_ending]
            continue
        opaque = [file for file in own if file.binary or file.huge]
        unread += [(file.path, "too large" if file.huge else "binary") for file in opaque]
        made = language.read(
            sorted(file.path for file in own if not (file.binary or file.huge)), tree
        )
        edges.update(made.edges)
        through.update(made.through)
        unread += made.unread
    counts = {ending: len(found) for ending, found in by_ending.items()}
    notes = [_not_read(counts, missing, f": {install_hint('plan')}")] if missing else []
    others = [ending for ending in _OTHER_LANGUAGES.split() if ending in counts]
    notes += [_not_read(counts, others)] if others else []
    return Imports(_in_order(edges), tuple(sorted(unread)), _in_order(through), tuple(notes))


def _not_read(counts: Mapping[str, int], endings: Iterable[str], hint: str = "") -> str:
    """`imports of 120 .ts and 3 .js files are not read`."""
    parts = [f"{counts[each]:,} {each}" for each in sorted(endings, key=lambda e: (-counts[e], e))]
    named = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    return f"imports of {named} files are not read{hint}"


def _in_order(edges: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    cleaned = {path: sorted({*edges[path]} - {path}) for path in sorted(edges) if edges[path]}
    return {path: tuple(to) for path, to in cleaned.items() if to}
