"""Finds for each test the file that it tests, by names, or else by imports.

    sources_of_tests(paths, imports.edges)["tests/test_cart.py"]     # "src/shop/cart.py"

A test is named as its language does: `test_x.py`, `x_test.go`, `x.test.ts`, `XTest.java`; of
JavaScript and Rust, all sources in a directory of tests are tests. Of several files of the right
name the nearest in the tree is taken. Directories of tests and layouts (`tests`, `src`) don't
count, so that `tests/shop/test_cart.py` is as near to `src/shop/cart.py` as
`shop/tests/test_cart.py` is to `shop/cart.py`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

_NEAR: Final = 2
"""Steps in the tree up to which one of several files of the right name is taken."""
_FEW: Final = 3
"""A test that imports at most so many files tests one of them, however far away it is."""
_TOOL: Final = 10
"""A file that more tests than these import is a tool of theirs, unless its name says otherwise."""
_FAMILIES: Final = {
    ending: family
    for family, endings in {
        "c": "c cc cpp cxx h hpp",
        "csharp": "cs",
        "go": "go",
        "java": "java kt scala",
        "js": "js jsx mjs cjs ts tsx mts cts vue",
        "php": "php",
        "py": "py",
        "ruby": "rb",
        "rust": "rs",
        "swift": "swift",
    }.items()
    for ending in endings.split()
}
_TEST_FOLDERS: Final = frozenset({"test", "tests", "__tests__", "spec", "specs", "unit"})
_NEVER_TESTED: Final = _TEST_FOLDERS - {"test", "unit"}  # which are also names of packages
_ALL_ARE_TESTS: Final = frozenset({"js", "rust"})
_HELPERS: Final = frozenset(
    {"fixture", "fixtures", "mock", "mocks", "helper", "helpers", "data", "util", "utils", "common"}
)
_LAYOUT_FOLDERS: Final = frozenset({"src", "lib", "main", "java", "kotlin", "scala"})
_NOT_COUNTED: Final = _TEST_FOLDERS | _LAYOUT_FOLDERS
_WHOLE_FOLDER: Final = frozenset({"__init__", "index", "mod", "lib"})
"""Files that stand for their directory."""
_PLAIN_TEST: Final = re.compile(r"tests?[_-](?P<after>.+)|(?P<before>.+?)[._-](?:tests?|spec)")
_CAMEL_TEST: Final = re.compile(
    r"(?P<before>[A-Z]\w*?)(?:Tests?|Spec|(?<=[a-z0-9])IT)|Test(?P<after>[A-Z]\w*)"
)
_CAMEL_FAMILIES: Final = frozenset({"java", "csharp", "swift", "php", "c"})


class _File(NamedTuple):
    path: str
    subject: str
    """Its name, as far as it says what the file is about; for a test, what it tests."""
    folders: tuple[str, ...]
    family: str
    is_test: bool


def sources_of_tests(paths: Iterable[str], edges: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """For each test the file that it tests; tests for which none is found are left out.

    Neither the order of the paths nor that of the edges matters. The file that is tested is among
    the paths, and is no test.
    """
    files = [file for file in map(_read, sorted(set(paths))) if file is not None]
    index = _Index()
    for file in files:
        if not file.is_test:
            index.add(file)
    tests = [file for file in files if file.is_test]
    importers = Counter(to for targets in edges.values() for to in set(targets))
    testers = Counter(to for test in tests for to in set(edges.get(test.path, ())))
    tools = {path for path, count in testers.items() if count > _TOOL}
    found = {}
    for test in tests:
        imported = set(edges.get(test.path, ()))
        found[test.path] = index.by_name(test, imported) or index.by_import(
            test, imported - tools, importers
        )
    return {test: source for test, source in found.items() if source is not None}


def is_test(path: str) -> bool:
    """Whether a path is that of a test."""
    file = _read(path)
    return file is not None and file.is_test


@dataclass(frozen=True, slots=True)
class _Index:
    """The files that may be tested, by what they are about."""

    sources: dict[str, _File] = field(default_factory=dict)
    by_subject: dict[tuple[str, str], list[_File]] = field(default_factory=dict)

    def add(self, file: _File) -> None:
        self.sources[file.path] = file
        self.by_subject.setdefault((file.family, file.subject), []).append(file)

    def by_name(self, test: _File, imported: set[str]) -> str | None:
        for subject in _shorter_and_shorter(test.subject):
            named = self.by_subject.get((test.family, subject), [])
            ranked = sorted(
                (file.path not in imported, _distance(test, file), file.path) for file in named
            )
            near = [
                path
                for strange, distance, path in ranked
                if distance <= _NEAR
                or not strange
                or (len(ranked) == 1 and subject == test.subject)
            ]
            if near:
                return near[0]
        return None

    def by_import(
        self, test: _File, imported: set[str], importers: Mapping[str, int]
    ) -> str | None:
        """The nearest file that it imports; of several, the one that the fewest files import."""
        files = [self.sources[path] for path in imported if path in self.sources]
        ranked = sorted((_distance(test, file), importers[file.path], file.path) for file in files)
        if ranked and (ranked[0][0] <= 1 or len(ranked) <= _FEW):
            return ranked[0][2]
        return None


def _read(path: str) -> _File | None:
    """What a path says; None if it is no source."""
    above, _, name = path.rpartition("/")
    stem, _, ending = name.rpartition(".")
    family = _FAMILIES.get(ending)
    if family is None or not stem:
        return None
    folders, kept = _folders(above)
    whole = (stem in _WHOLE_FOLDER or stem == "tests") and len(kept) > 0
    subject = kept[-1] if whole else stem
    tested = _tested(stem, family, folders)
    if tested is None and not _NEVER_TESTED.isdisjoint(folders):
        return None  # helps tests
    return _File(
        path,
        _normal(tested or subject),
        kept[:-1] if whole else kept,
        family,
        is_test=tested is not None,
    )


@lru_cache(maxsize=100)  # files of a directory come one after the other
def _folders(above: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The directories above a file, and those of them that count."""
    folders = tuple(above.split("/")) if above else ()
    return folders, tuple(each for each in folders if each not in _NOT_COUNTED)


def _tested(stem: str, family: str, folders: Sequence[str]) -> str | None:
    """What a test is about, empty if its name doesn't say; None if it is no test."""
    named = _PLAIN_TEST.fullmatch(stem)
    if named is None and family in _CAMEL_FAMILIES:
        named = _CAMEL_TEST.fullmatch(stem)
    if named is not None:
        return str(named["before"] or named["after"])
    if stem == "tests":
        return ""
    if family not in _ALL_ARE_TESTS or _TEST_FOLDERS.isdisjoint(folders):
        return None
    return stem if _HELPERS.isdisjoint(map(_normal, (*folders, stem))) else None


def _normal(name: str) -> str:
    return name.casefold().replace("-", "_").replace(".", "_").strip("_")


def _shorter_and_shorter(subject: str) -> Iterator[str]:
    """`cart_empty`, then `cart`."""
    while subject:
        yield subject
        subject = subject.rpartition("_")[0]


def _distance(one: _File, other: _File) -> int:
    """Steps between two directories in the tree, or in a tree that mirrors it."""
    return (
        len(one.folders)
        + len(other.folders)
        - 2
        * max(_common(one.folders, other.folders), _common(one.folders[::-1], other.folders[::-1]))
    )


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
