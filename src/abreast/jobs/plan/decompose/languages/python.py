"""Reads the imports of Python files; `python_definitions` says what they lead to."""

from collections.abc import Sequence

from abreast.jobs.plan.decompose.import_scanner import ImportScanner, Statement, read_text
from abreast.jobs.plan.decompose.languages.python_definitions import (
    INITS,
    Definitions,
    attribute_uses,
    package_names,
)
from abreast.jobs.plan.decompose.languages.python_modules import SUFFIXES, Modules
from abreast.jobs.plan.decompose.languages.reading import LanguageImports, SourceTree


def read_python(paths: Sequence[str], tree: SourceTree) -> LanguageImports:
    """Read every one of these files; those that can't be read are in `unread`."""
    scanner = ImportScanner()
    statements: dict[str, list[Statement]] = {}
    uses: dict[str, dict[str, tuple[str, ...]]] = {}
    unread: list[tuple[str, str]] = []
    every = {_package_name(path) for path in paths if path.endswith(INITS)}
    packages: set[str] = set()  # those that import anything
    # Packages first: in the other files, only the uses of these are looked for.
    for path in sorted(paths, key=lambda path: not path.endswith(INITS)):
        try:
            source = tree.read(path)
            text = read_text(source) if b"import" in source else ""
            found = statements[path] = scanner.read(source, text)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
            unread.append((path, _reason(error)))
            continue
        whole = path.endswith(INITS)
        if found and whole:
            packages.add(_package_name(path))
        if used := attribute_uses(text or "", package_names(found, every if whole else packages)):
            uses[path] = used
    modules = Modules(sorted(path for path in tree.paths if path.endswith(SUFFIXES)))
    modules.name_root(each for one in statements.values() for each in one)
    definitions = Definitions(modules, statements, uses, tree.read)
    edges: dict[str, tuple[str, ...]] = {}
    through: dict[str, tuple[str, ...]] = {}
    for path in statements:
        ends, passed = definitions.imported(path)
        edges[path], through[path] = tuple(ends), tuple(passed)
    return LanguageImports(edges, through, unread)


def _package_name(path: str) -> str:
    return path.rpartition("/")[0].rpartition("/")[2]


def _reason(error: Exception) -> str:
    return (
        f"line {error.lineno or 0}: {error.msg}"
        if isinstance(error, SyntaxError)
        else str(error) or type(error).__name__
    )
