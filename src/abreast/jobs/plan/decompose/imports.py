"""The imports between the Python files of a repository, read from syntax; no code is run.

    imports = read_imports(root, inventory)
    imports.edges["src/shop/cart.py"]     # ("src/shop/money.py", "src/shop/stock.py")

Only Python is read: files of other languages have no edges, and are divided by their directories
and names alone. A name is resolved as Python would, in every directory that can be on its path:
beside a script, above the topmost package, `src`, then where other packages of the repository are.
Namespace packages need no `__init__.py`.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from abreast.jobs.plan.decompose.import_scanner import ImportScanner, Statement
from abreast.jobs.plan.decompose.inventory import FileForm, Inventory

_SUFFIXES: Final = (".py", ".pyi")
_INIT: Final = "__init__"
_COMPILED_SUFFIXES: Final = frozenset({"so", "pyd", "pyx", "c", "cpp", "f90"})


@dataclass(frozen=True, slots=True)
class Imports:
    """`edges` has for each file the files of the repository that it imports.

    They are sorted, each once, never the file itself. `unread` are files whose syntax could not be
    read, each with the reason; they import nothing in `edges`.
    """

    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, edges: Mapping[str, Iterable[str]]) -> Self:
        """The imports of edges in any order."""
        cleaned = {path: tuple(sorted(set(edges[path]) - {path})) for path in sorted(edges)}
        return cls({path: to for path, to in cleaned.items() if to})

    @property
    def notes(self) -> tuple[str, ...]:
        """The files that could not be read, as sentences."""
        return tuple(f"the imports of {path} can't be read: {why}" for path, why in self.unread)


def read_imports(root: Path, inventory: Inventory) -> Imports:
    """Read every Python file of the inventory; those that can't be read are in `unread`."""
    scanner = ImportScanner()
    files = [
        file
        for file in inventory.files
        if file.form is FileForm.FILE and file.path.endswith(_SUFFIXES)
    ]
    modules = Modules([file.path for file in files])
    parsed: dict[str, list[Statement]] = {}
    unread: list[tuple[str, str]] = []
    for file in files:
        if file.binary or file.huge:
            unread.append((file.path, "too large" if file.huge else "binary"))
            continue
        try:
            parsed[file.path] = scanner.read((root / file.path).read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
            unread.append((file.path, _reason(error)))
    modules.name_root(each for statements in parsed.values() for each in statements)
    made = Imports.of(
        {
            path: [to for each in parsed[path] for to in modules.targets(path, each)]
            for path in parsed
        }
    )
    return Imports(made.edges, tuple(unread))


def _reason(error: Exception) -> str:
    return (
        f"line {error.lineno or 0}: {error.msg}"
        if isinstance(error, SyntaxError)
        else str(error) or type(error).__name__
    )


@dataclass(frozen=True, slots=True)
class ImportedName:
    """What a statement imports from the repository: a module, or one name that is not a module."""

    module: str
    file: str | None
    name: str | None = None
    folder: bool = False
    """Whether there is a directory of that name, with Python files beneath it."""


class Modules:
    """Resolves dotted names among the Python files of a tree."""

    def __init__(self, paths: Sequence[str], others: Iterable[str] = ()) -> None:
        """Index these files; `others` may have modules in C, or their sources."""
        stems = ((other, other.rpartition("/")[2].split(".")) for other in others)
        self._compiled = {
            _join(_above(other), parts[0])
            for other, parts in stems
            if parts[-1] in _COMPILED_SUFFIXES
        }
        self._paths = set(paths)
        self._packages = {_above(path) for path in paths if _stem(path) == _INIT}
        self._folders = {folder for path in paths for folder in _folders_above(path)}
        self._homes = sorted(
            {self._home(path) for path in paths},
            key=lambda home: (home != "src", home.count("/"), home),
        )
        self._own = ""
        self._files = _by_module(self._paths)
        self._tops: dict[tuple[str, str], str | None] = {}  # answers of `_top`

    def name_root(self, statements: Iterable[Statement]) -> None:
        """Find the package name of the root, if it is a package.

        It is the name under which most of its modules are imported, not the name of its directory,
        which is different in a copy or a worktree.
        """
        if "" not in self._packages:
            return
        votes = Counter(
            first
            for each in statements
            for first, rest in _absolute_names(each)
            if rest and self._files.get(rest)
        )
        self._own = min(votes, key=lambda name: (-votes[name], name), default="")

    def targets(self, path: str, statement: Statement) -> Iterator[str]:
        """The files that a statement of `path` imports."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                place = self._place(path, alias.name)
                yield from self._members(place, ()) if place is not None else ()
            return
        base = self._base(path, statement)
        if base is not None:
            yield from self._members(base, [alias.name for alias in statement.names])

    def imported_names(self, path: str, statement: Statement) -> Iterator[ImportedName]:
        """What a statement of `path` imports from this repository; nothing for other packages."""
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                place = self._place(path, alias.name)
                if place is not None and place not in self._compiled:
                    yield self._whole(place, alias.name)
            return
        place = self._base(path, statement)
        if place is None or place in self._compiled:
            return
        spelled = "." * statement.level + (statement.module or "")
        whole = self._whole(place, spelled)
        if whole.file is None and not whole.folder:
            yield whole
            return
        for alias in statement.names:
            inside = _join(place, alias.name)
            if alias.name == "*":
                yield whole
            elif not (
                self._files.get(inside) or inside in self._folders or inside in self._compiled
            ):
                yield ImportedName(spelled, whole.file, alias.name, whole.folder)

    def _whole(self, place: str, spelled: str) -> ImportedName:
        return ImportedName(spelled, self._files.get(place), folder=place in self._folders)

    def _place(self, path: str, name: str) -> str | None:
        """The path of a dotted name; None if its first part is not in this repository."""
        first, _, rest = name.partition(".")
        if first == self._own and first:
            return _join(*rest.split("."))
        key = (self._home(path), first)
        if key not in self._tops:
            self._tops[key] = self._top(*key)
        root = self._tops[key]
        return None if root is None else _join(root, *name.split("."))

    def _base(self, path: str, statement: ast.ImportFrom) -> str | None:
        if not statement.level:
            return self._place(path, statement.module or "")
        base = _above(path)
        for _ in range(statement.level - 1):
            if not base:
                return None  # above the root
            base = _above(base)
        return _join(base, *(statement.module or "").split("."))

    def _members(self, place: str, imported_names: Sequence[str]) -> Iterator[str]:
        """The files of `from place import ...`: a submodule if there is one, else the module."""
        own = self._files.get(place)
        for name in imported_names or ("",):
            found = self._files.get(_join(place, name)) or own
            if found:
                yield found

    def _top(self, home: str, first: str) -> str | None:
        """The directory of a top-level name, for files whose own is `home`; None if not found."""
        return next(
            (
                root
                for root in self._search(home, first)
                if (place := _join(root, first)) in self._folders or place in self._files
            ),
            None,
        )

    def _search(self, home: str, first: str) -> Iterator[str]:
        """The directories in which a top-level name may be, nearest first."""
        own = [home, *(folder for folder in _folders_above(home) if folder != home)]
        yield from own
        # `import json` does not mean a file of another part of the repository.
        if first not in sys.stdlib_module_names:
            yield from (other for other in self._homes if other not in own)

    def _home(self, path: str) -> str:
        """The directory above the topmost package of a file."""
        home = _above(path)
        while home in self._packages and home:
            home = _above(home)
        return home


def _absolute_names(statement: Statement) -> Iterator[tuple[str, str]]:
    """The first part of each absolute name, and the rest as a path."""
    if isinstance(statement, ast.Import):
        spelled = [alias.name for alias in statement.names]
    elif statement.level:
        return
    else:
        spelled = [f"{statement.module}.{alias.name}" for alias in statement.names] + [
            statement.module or ""
        ]
    for name in spelled:
        first, *rest = name.split(".")
        yield first, _join(*rest)


def _by_module(paths: Iterable[str]) -> dict[str, str]:
    """The file of each module, by its path without a suffix.

    A package is preferred to a module, and `.py` to `.pyi`.
    """
    found: dict[str, tuple[int, str]] = {}
    for path in paths:
        stem, _, ending = path.rpartition(".")
        rank = _SUFFIXES.index(f".{ending}")
        places = [(stem, len(_SUFFIXES) + rank)]
        if _stem(path) == _INIT:
            places.append((_above(path), rank))
        for place, order in places:
            found[place] = min(found.get(place, (order, path)), (order, path))
    return {place: path for place, (_, path) in found.items()}


def _above(path: str) -> str:
    return path.rpartition("/")[0]


def _folders_above(path: str) -> Iterator[str]:
    while path:
        path = _above(path)
        yield path


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)
