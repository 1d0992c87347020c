"""Reads the imports of Java: classes by package and name, static ones and those of `*` included.

Classes of one package need no imports to use each other; these uses count, too.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from abreast.jobs.plan.decompose.languages.reading import LanguageImports, SourceTree
from abreast.jobs.plan.decompose.languages.syntax import Syntax

ENDINGS: Final = (".java",)
_QUERY: Final = """
(package_declaration [(identifier) (scoped_identifier)] @package)
(import_declaration) @import
"""
# Imports come before all classes, and the rest is nine tenths of a parser's time.
_AFTER_IMPORTS: Final = re.compile(
    rb"^[ \t]*(?:(?:public|abstract|final|sealed|non-sealed|strictfp)[ \t]+)*"
    rb"(?:class|interface|enum|record|@interface)[ \t]+\w+",
    re.MULTILINE,
)
_BLANKED: Final = re.compile(
    r'//[^\n]*|/\*.*?\*/|"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"', re.DOTALL
)
_CLASS: Final = re.compile(r"(?<![\w.])[A-Z]\w*")


class _JavaFile(NamedTuple):
    package: str
    imports: tuple[str, ...]
    classes: frozenset[str]
    """Words that may be names of classes."""


def read_java(paths: Sequence[str], tree: SourceTree) -> LanguageImports:
    """Read every one of these files; those that can't be read are in `unread`."""
    syntax = Syntax("java", _QUERY)
    files: dict[str, _JavaFile] = {}
    unread: list[tuple[str, str]] = []
    for path in paths:
        try:
            files[path] = _read_file(syntax, tree.read(path))
        except OSError as error:
            unread.append((path, str(error)))
    packages: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, file in files.items():
        packages[file.package][path.rpartition("/")[2].removesuffix(".java")].append(path)
    edges = {path: set(_imported(path, file, packages)) for path, file in files.items()}
    return LanguageImports(edges, unread=unread)


def _read_file(syntax: Syntax, source: bytes) -> _JavaFile:
    end = _AFTER_IMPORTS.search(source)
    package, imports = "", []
    for each in syntax.captures(source[: end.start()] if end else source):
        if each.name == "package":
            package = "".join(each.text.split())
        else:
            words = each.text.rstrip(";").split()
            imports.append("".join(words[2:] if words[1:2] == ["static"] else words[1:]))
    code = _BLANKED.sub(" ", source.decode(errors="replace"))
    return _JavaFile(package, tuple(imports), frozenset(_CLASS.findall(code)))


def _imported(
    path: str, file: _JavaFile, packages: Mapping[str, Mapping[str, list[str]]]
) -> Iterator[str]:
    """The files of the classes that a file imports, or uses without."""
    named = set()
    wild = [file.package]
    for spelled in file.imports:
        parts = spelled.split(".")
        if parts[-1] == "*" and ".".join(parts[:-1]) in packages:
            wild.append(".".join(parts[:-1]))
            continue
        # The class may be followed by a class within it, by a static name, or by `*`.
        for count in range(len(parts) - 1, 0, -1):
            package, name = ".".join(parts[:count]), parts[count]
            if package in packages and name in packages[package]:
                named.add(name)
                yield _nearest(path, packages[package][name])
                break
    for package in wild:
        for name in (file.classes - named) & packages[package].keys():
            yield _nearest(path, packages[package][name])


def _nearest(path: str, found: Sequence[str]) -> str:
    """Of several files of one class, the one with the longest common path."""
    parts = path.split("/")

    def common(other: str) -> int:
        pairs = zip(parts, other.split("/"), strict=False)
        return next((place for place, (a, b) in enumerate(pairs) if a != b), len(parts))

    return min(found, key=lambda other: (-common(other), other))
