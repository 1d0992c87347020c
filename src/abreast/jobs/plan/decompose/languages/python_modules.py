"""Resolves dotted names among the Python files of a tree, as Python would.

A name is looked for in every directory that can be on the path: beside a script, above the topmost
package, `src`, then where other packages of the repository are. Namespace packages need no
`__init__.py`.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from abreast.jobs.plan.decompose.import_scanner import Statement

SUFFIXES: Final = (".py", ".pyi")
_INIT: Final = "__init__"
_COMPILED_SUFFIXES: Final = frozenset({"so", "pyd", "pyx", "c", "cpp", "f90"})


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
            join(_above(other), parts[0])
            for other, parts in stems
            if parts[-1] in _COMPILED_SUFFIXES
        }
        self._packages = {_above(path) for path in paths if _stem(path) == _INIT}
        nearest = {_above(path) for path in paths}
        self._folders = {each for folder in nearest for each in (folder, *_folders_above(folder))}
        self._home_of = {folder: self._home(folder) for folder in self._folders}
        homes = sorted(
            {self._home_of[_above(path)] for path in paths},
            key=lambda home: (home != "src", home.count("/"), home),
        )
        self._own = ""
        self._files = _by_module(paths)
        ranks = {home: rank for rank, home in enumerate(homes)}
        self._homes_of: dict[str, list[str]] = {}  # those that have a top-level name
        for place in {*self._files, *self._folders}:
            home, _, first = place.rpartition("/")
            if home in ranks:
                self._homes_of.setdefault(first, []).append(home)
        for found in self._homes_of.values():
            found.sort(key=ranks.__getitem__)
        self._tops: dict[tuple[str, str], str | None] = {}  # answers of `_top`
        self._places: dict[str, dict[str, str | None]] = {home: {} for home in homes}

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

    def imported_names(self, path: str, statement: Statement) -> Iterator[ImportedName]:
        """What a statement of `path` imports from this repository; nothing for other packages."""
        if statement.level is None:
            for name, _ in statement.names:
                place = self.place(path, name)
                if place is not None and place not in self._compiled:
                    yield self._whole(place, name)
            return
        place = self.base(path, statement)
        if place is None or place in self._compiled:
            return
        spelled = "." * statement.level + (statement.module or "")
        whole = self._whole(place, spelled)
        if whole.file is None and not whole.folder:
            yield whole
            return
        for name, _ in statement.names:
            inside = join(place, name)
            if name == "*":
                yield whole
            elif not (
                self._files.get(inside) or inside in self._folders or inside in self._compiled
            ):
                yield ImportedName(spelled, whole.file, name, whole.folder)

    def _whole(self, place: str, spelled: str) -> ImportedName:
        return ImportedName(spelled, self._files.get(place), folder=place in self._folders)

    def file(self, place: str) -> str | None:
        """The file of a module or package; None for a namespace package."""
        return self._files.get(place)

    def has(self, place: str) -> bool:
        """Whether there is a module or package at a place."""
        return place in self._files or place in self._folders

    def place(self, path: str, name: str) -> str | None:
        """The place of a dotted name for `path`; None if its first part is not here.

        A place is the path of a module without a suffix, or that of a package's directory; nothing
        may be there.
        """
        home = self._home_of[path.rpartition("/")[0]]
        places = self._places[home]
        if name not in places:
            places[name] = self._find_place(home, name)
        return places[name]

    def _find_place(self, home: str, name: str) -> str | None:
        first, _, rest = name.partition(".")
        if first == self._own and first:
            return rest.replace(".", "/")
        key = (home, first)
        if key not in self._tops:
            self._tops[key] = self._top(*key)
        root = self._tops[key]
        return None if root is None else join(root, name.replace(".", "/"))

    def base(self, path: str, statement: Statement) -> str | None:
        """The place of the module that `from module import ...` names."""
        if not statement.level:
            return self.place(path, statement.module or "")
        base = _above(path)
        for _ in range(statement.level - 1):
            if not base:
                return None  # above the root
            base = _above(base)
        return join(base, statement.module.replace(".", "/")) if statement.module else base

    def _top(self, home: str, first: str) -> str | None:
        """The directory of a top-level name, for files whose own is `home`: the nearest.

        None if it is not found.
        """
        for folder in (home, *_folders_above(home)):
            if self.has(join(folder, first)):
                return folder
        # `import json` does not mean a file of another part of the repository.
        if first in sys.stdlib_module_names:
            return None
        return next(iter(self._homes_of.get(first, ())), None)

    def _home(self, home: str) -> str:
        """The directory above the topmost package that a directory is in."""
        while home in self._packages and home:
            home = _above(home)
        return home


def _absolute_names(statement: Statement) -> Iterator[tuple[str, str]]:
    """The first part of each absolute name, and the rest as a path."""
    if statement.level is None:
        spelled = [name for name, _ in statement.names]
    elif statement.level:
        return
    else:
        spelled = [f"{statement.module}.{name}" for name, _ in statement.names] + [
            statement.module or ""
        ]
    for name in spelled:
        first, *rest = name.split(".")
        yield first, join(*rest)


def _by_module(paths: Iterable[str]) -> dict[str, str]:
    """The file of each module, by its path without a suffix.

    A package is preferred to a module, and `.py` to `.pyi`.
    """
    found: dict[str, tuple[int, str]] = {}
    for path in paths:
        stem, _, ending = path.rpartition(".")
        rank = SUFFIXES.index(f".{ending}")
        places = [(stem, len(SUFFIXES) + rank)]
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


def join(*parts: str) -> str:
    """The parts of a path that are not empty, with `/` between them."""
    return "/".join(part for part in parts if part)
