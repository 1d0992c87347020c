"""Reads the imports of Go: a package leads to those of its files that define the names in use.

Files of one package need no imports to use each other's names; these uses count, too. Where a
package is imported and none of its names found, its first file stands for it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from abreast.jobs.plan.decompose.languages.reading import LanguageImports, SourceTree
from abreast.jobs.plan.decompose.languages.syntax import Syntax

ENDINGS: Final = (".go",)
_QUERY: Final = "(package_clause (package_identifier) @package) (import_spec) @import"
# Imports come before all else, and the rest is nine tenths of a parser's time.
_AFTER_IMPORTS: Final = re.compile(rb"^(?:func|type|var|const)\b", re.MULTILINE)
_BLANKED: Final = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|`[^`]*`|\'(?:[^\'\\\n]|\\.)+\'', re.DOTALL
)
_DEFINED: Final = re.compile(r"^(?:func|type|var|const)\s+(\w+)", re.MULTILINE)
_BLOCK: Final = re.compile(r"^(?:type|var|const)\s*\((.*?)^\)", re.MULTILINE | re.DOTALL)
_IN_BLOCK: Final = re.compile(r"^\t(\w+)", re.MULTILINE)
_SELECTED: Final = re.compile(r"(?<![\w.])(\w+)\.([A-Z]\w*)")
_WORD: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_MODULE: Final = re.compile(r"^module\s+\"?([^\s\"]+)", re.MULTILINE)


@dataclass(slots=True)
class _GoFile:
    package: str = ""
    imports: list[tuple[str, str]] = field(default_factory=list)  # its name here, its path
    selected: dict[str, set[str]] = field(default_factory=dict)
    words: frozenset[str] = frozenset()


def read_go(paths: Sequence[str], tree: SourceTree) -> LanguageImports:
    """Read every one of these files; those that can't be read are in `unread`."""
    syntax = Syntax("go", _QUERY)
    files: dict[str, _GoFile] = {}
    defined: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    unread: list[tuple[str, str]] = []
    # Tests last: a name of theirs is not that of the package.
    for path in sorted(paths, key=lambda path: (path.endswith("_test.go"), path)):
        try:
            source = tree.read(path)
        except OSError as error:
            unread.append((path, str(error)))
            continue
        code = _BLANKED.sub(" ", source.decode(errors="replace"))
        file = files[path] = _read_file(syntax, source, code)
        names = defined[path.rpartition("/")[0], file.package]
        for name in _defined_names(code):
            names.setdefault(name, path)
    packages = _Packages(tree, files, defined)
    edges = {path: set(packages.imported(path, file)) for path, file in files.items()}
    return LanguageImports(edges, unread=unread)


def _read_file(syntax: Syntax, source: bytes, code: str) -> _GoFile:
    end = _AFTER_IMPORTS.search(source)
    made = _GoFile(words=frozenset(_WORD.findall(code)))
    for each in syntax.captures(source[: end.start()] if end else source):
        if each.name == "package":
            made.package = each.text
        else:
            name, _, spelled = each.text.rpartition(" ")
            made.imports.append((name.strip(), spelled.strip('"`')))
    for name, used in _SELECTED.findall(code):
        made.selected.setdefault(name, set()).add(used)
    return made


def _defined_names(code: str) -> Iterator[str]:
    yield from _DEFINED.findall(code)
    for block in _BLOCK.findall(code):
        yield from _IN_BLOCK.findall(block)


class _Packages:
    """Resolves the paths of packages by the `go.mod` files of a tree."""

    def __init__(
        self,
        tree: SourceTree,
        files: dict[str, _GoFile],
        defined: dict[tuple[str, str], dict[str, str]],
    ) -> None:
        self._defined = defined
        self._first: dict[str, tuple[str, str]] = {}  # of each directory: package, first file
        for path in sorted(files, key=lambda path: (path.endswith("_test.go"), path)):
            self._first.setdefault(path.rpartition("/")[0], (files[path].package, path))
        self._modules = []
        for path in sorted(tree.paths):
            folder, _, name = path.rpartition("/")
            if name == "go.mod" and (found := _MODULE.search(tree.read_text(path))):
                self._modules.append((found[1], folder))
        self._modules.sort(key=lambda module: -len(module[0]))
        self._folders: dict[str, str | None] = {}
        self._by_name = defaultdict(list)
        for folder in self._first:
            self._by_name[folder.rpartition("/")[2]].append(folder)

    def imported(self, path: str, file: _GoFile) -> Iterator[str]:
        """The files that define what a file uses."""
        own = self._defined[path.rpartition("/")[0], file.package]
        yield from (own[word] for word in file.words & own.keys())
        for alias, spelled in file.imports:
            folder = self._folder(spelled)
            if folder is None:
                continue
            package, first = self._first[folder]
            names = self._defined[folder, package]
            wanted = file.words if alias == "." else file.selected.get(alias or package, set())
            found = [names[name] for name in wanted if name in names]
            yield from found or [first]

    def _folder(self, spelled: str) -> str | None:
        """The directory of a package; None if it is not of this tree."""
        if spelled not in self._folders:
            self._folders[spelled] = next(
                (each for each in self._candidates(spelled) if each in self._first), None
            )
        return self._folders[spelled]

    def _candidates(self, spelled: str) -> Iterator[str]:
        for module, folder in self._modules:
            if f"{spelled}/".startswith(f"{module}/"):
                yield f"{folder}{spelled[len(module) :]}".removeprefix("/")
        if "." in spelled.partition("/")[0]:  # a tree of sources without go.mod, as in GOPATH
            for folder in sorted(self._by_name[spelled.rpartition("/")[2]]):
                if f"/{folder}".endswith(f"/{spelled}"):
                    yield folder
