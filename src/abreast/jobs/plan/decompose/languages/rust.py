"""Reads the imports of Rust: `mod x;`, `use`, and paths that begin with `crate`, `self` or `super`.

A path leads to the deepest module of it that is a file; a name that this file only passes on, by
`pub use`, to the file that has it. Other crates of the repository are known by their names.
Attributes are not read (`#[path]`, `#[cfg]`).
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from abreast.jobs.plan.decompose.languages.reading import LanguageImports, SourceTree
from abreast.jobs.plan.decompose.languages.syntax import Capture, Syntax

ENDINGS: Final = (".rs",)
_QUERY: Final = """
(use_declaration) @use
(mod_item name: (_) @file !body)
(mod_item body: (_) @inline)
(source_file (macro_invocation (token_tree) @macro))
(source_file (_ name: (_) @item))
(scoped_identifier path: (_)) @path
(scoped_type_identifier path: (_)) @path
"""
_USE: Final = re.compile(r"\buse\s+([^;]+);")
_MOD: Final = re.compile(r"\bmod\s+(\w+)\s*;")
_ITEM: Final = re.compile(r"\b(?:fn|struct|enum|trait|type|union|const|static)\s+(\w+)")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STARTS: Final = ("crate::", "self::", "super::")
_ROOTS: Final = ("lib.rs", "main.rs", "mod.rs")


@dataclass(slots=True)
class _RustFile:
    uses: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    """Paths, each with the name that it gets here; `*` for all names."""
    modules: list[str] = field(default_factory=list)
    items: set[str] = field(default_factory=set)


def read_rust(paths: Sequence[str], tree: SourceTree) -> LanguageImports:
    """Read every one of these files; those that can't be read are in `unread`."""
    syntax = Syntax("rust", _QUERY)
    files: dict[str, _RustFile] = {}
    unread: list[tuple[str, str]] = []
    for path in paths:
        try:
            files[path] = _read_file(syntax.captures(tree.read(path)))
        except OSError as error:
            unread.append((path, str(error)))
    crates = _Crates(tree, files)
    edges: dict[str, set[str]] = {}
    through: dict[str, set[str]] = {}
    for path in files:
        edges[path], through[path] = crates.imported(path)
    return LanguageImports(edges, through, unread)


def _read_file(captures: Sequence[Capture]) -> _RustFile:
    made = _RustFile()
    inline = [(each.start, each.end) for each in captures if each.name == "inline"]
    covered = 0
    for each in captures:
        depth = sum(start < each.start < end for start, end in inline)
        if each.name == "path" and each.start < covered:
            continue  # a part of a path, or of a use
        if each.name in {"path", "use"}:
            covered = each.end
        if each.name == "item" and not depth:
            made.items.add(each.text)
        elif each.name == "file" and not depth:
            made.modules.append(each.text)
        elif each.name == "use":
            _add_uses(made, each.text, depth)
        elif each.name == "path" and each.text.startswith(_STARTS):
            words = tuple(re.findall(r"\w+", each.text.partition("<")[0]))
            made.uses.append((_without_inline(words, depth), ""))
        elif each.name == "macro" and not depth:  # `cfg_feature! { pub mod x; }`
            text = _COMMENT.sub(" ", each.text)
            made.modules += _MOD.findall(text)
            made.items.update(_ITEM.findall(text))
            for use in _USE.finditer(text):
                _add_uses(made, use[0], depth)
    return made


def _add_uses(made: _RustFile, text: str, depth: int) -> None:
    found = _USE.search(_COMMENT.sub(" ", text))
    for words, name in _expand(found[1]) if found else ():
        made.uses.append((_without_inline(words, depth), "" if depth else name))


def _without_inline(words: tuple[str, ...], depth: int) -> tuple[str, ...]:
    """A path in modules within the file, as it would be written outside of them."""
    while depth and words[:1] in {("super",), ("self",)}:
        depth -= words[0] == "super"
        words = words[1:]
        if not depth or words[:1] != ("super",):
            return ("self", *words) if words[:1] != ("super",) else words
    return words


def _expand(text: str, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paths of `a::{b, c::{d as e, self}, f::*}`, each with the name that it gets."""
    for one in _split(text):
        head, brace, inner = one.partition("{")
        words, _, name = head.partition(" as ")
        path = before + tuple(word.strip() for word in words.split("::") if word.strip())
        if brace:
            yield from _expand(inner.rpartition("}")[0], path)
        elif path:
            if path[-1] == "self" and len(path) > 1:
                path = path[:-1]
            yield path, name.strip() or path[-1]


def _split(text: str) -> Iterator[str]:
    """The parts between the commas that are in no braces."""
    depth = start = 0
    for place, character in enumerate(text):
        if character in "{}":
            depth += 1 if character == "{" else -1
        elif character == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


class _Crates:
    """Resolves the paths of modules in the crates of a tree."""

    def __init__(self, tree: SourceTree, files: dict[str, _RustFile]) -> None:
        self._files = files
        self._libraries: dict[str, str] = {}
        self._homes: dict[str, str] = {}  # the library of the crate in each directory
        self._found: dict[tuple[str, str], str | None] = {}
        for path in sorted(tree.paths, key=lambda path: (path.count("/"), path)):
            folder, _, name = path.rpartition("/")
            if name == "Cargo.toml":
                self._add_crate(folder, tree.read_text(path))

    def _add_crate(self, folder: str, text: str) -> None:
        try:
            given = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return
        package, library = given.get("package", {}), given.get("lib", {})
        root = _join(folder, str(library.get("path", "src/lib.rs")))
        name = str(library.get("name", package.get("name", ""))).replace("-", "_")
        if name and root in self._files:
            self._libraries.setdefault(name, root)

    def imported(self, path: str) -> tuple[set[str], set[str]]:
        """The files that a file needs, and those that its imports pass through."""
        file = self._files[path]
        ends = {child for name in file.modules if (child := self._child(path, name))}
        through: set[str] = set()
        for words, _ in file.uses:
            start = self._start(path, words)
            if start is None:
                continue
            module, rest = self._walk(*start)
            end = self._find(module, rest[0]) if rest and rest[0] != "*" else None
            ends.add(end or module)
            through.add(module)
        return ends, through - ends

    def _start(self, path: str, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
        """The file that a path begins in, and the rest of it; None if it is of another tree."""
        first, rest = words[0], words[1:]
        if first == "crate":
            return self._root(path), rest
        if first == "self":
            return path, rest
        if first == "super":
            above = self._parent(path)
            while rest[:1] == ("super",) and above:
                above, rest = self._parent(above), rest[1:]
            return (above, rest) if above else None
        if self._child(path, first):
            return path, words
        library = self._libraries.get(first)
        return (library, rest) if library else None

    def _walk(self, path: str, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """The deepest module that is a file, and the rest of the path."""
        while words and (child := self._child(path, words[0])):
            path, words = child, words[1:]
        return path, words

    def _find(self, path: str, name: str) -> str | None:
        """The file that has a name of a module; None if that can't be told."""
        key = (path, name)
        if key not in self._found:
            self._found[key] = None  # while it is searched: modules may pass on each other's names
            self._found[key] = self._search(path, name)
        return self._found[key]

    def _search(self, path: str, name: str) -> str | None:
        file = self._files[path]
        if name in file.items:
            return path
        for all_names in (False, True):
            for words, given in file.uses:
                if given != ("*" if all_names else name) or words == (name,):
                    continue
                start = self._start(path, words)
                if start is None:
                    continue
                module, rest = self._walk(*start)
                wanted = name if all_names else rest[0] if rest else None
                if wanted is None:
                    return module
                if module != path and (found := self._find(module, wanted)):
                    return found
                if not all_names and module != path:
                    return module
        return None

    def _child(self, path: str, name: str) -> str | None:
        folder, _, file = path.rpartition("/")
        if file not in _ROOTS and self._parent(path) is not None:
            folder = _join(folder, file.removesuffix(".rs"))
        places = (_join(folder, f"{name}.rs"), _join(folder, name, "mod.rs"))
        return next((place for place in places if place in self._files and place != path), None)

    def _parent(self, path: str) -> str | None:
        """The file of the module above; None for the root of a crate."""
        folder, _, file = path.rpartition("/")
        if file in {"lib.rs", "main.rs"}:
            return None
        if file == "mod.rs":
            folder = folder.rpartition("/")[0]
        places = [_join(folder, name) for name in _ROOTS]
        if folder:
            places.append(f"{folder}.rs")
        return next((place for place in places if place in self._files and place != path), None)

    def _root(self, path: str) -> str:
        while (above := self._parent(path)) is not None:
            path = above
        return path


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)
