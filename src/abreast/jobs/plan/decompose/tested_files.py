"""Which file each test is a test of: by its name, else by what it imports.

sources_of_tests(["shop/cart.py", "shop/tests/test_cart.py"], {})
# {"shop/tests/test_cart.py": "shop/cart.py"}
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from abreast.jobs.plan.decompose.inventory import folders_between

_TEST_FOLDERS: Final = frozenset({"test", "tests", "__tests__", "testing"})
# What is left of a test's name is that of its source.
_TEST_NAME: Final = re.compile(
    r"(?:test_(?P<before>.+)|(?P<after>.+?)(?:_tests?|\.test|\.spec|-test|Tests?))$"
)
_UNCOUNTED: Final = _TEST_FOLDERS | {"src", "lib", "main", "java", "python"}
_MAX_DISTANCE: Final = 2  # directories between a test and its source, test directories not counted
_SUPPORT: Final = frozenset({"__init__", "conftest", "mod", "index"})


def sources_of_tests(paths: Iterable[str], edges: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The source of each test that has one.

    The nearest file of that name, if it is near enough; else, of the files that it imports, the
    nearest one, and of several the one that fewest others import.
    """
    listed = sorted(paths)
    tests = {path: stem for path in listed if (stem := _tested_stem(path)) is not None}
    by_name: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in listed:
        if path not in tests:
            by_name[_stem(path), _suffix(path)].append(path)
    importers = Counter(to for targets in edges.values() for to in targets)
    found: dict[str, str] = {}
    for test, stem in tests.items():
        named = _nearest(test, by_name.get((stem, _suffix(test)), ()), _MAX_DISTANCE, importers)
        imported = [to for to in edges.get(test, ()) if to not in tests]
        source = named or _nearest(test, imported, _MAX_DISTANCE - 1, importers)
        if source is not None:
            found[test] = source
    return found


def _nearest(
    test: str, sources: Sequence[str], most: int, importers: Mapping[str, int]
) -> str | None:
    ranked = [(_distance(test, each), importers.get(each, 0), each) for each in sources]
    return min((each for each in ranked if each[0] <= most), default=(0, 0, None))[2]


def _tested_stem(path: str) -> str | None:
    """The name that the source of a test has; None for a file that is no test."""
    stem = _stem(path)
    named = _TEST_NAME.match(stem)
    if named is not None:
        return named["before"] or named["after"]
    in_tests = _TEST_FOLDERS.intersection(path.split("/")[:-1])
    return stem if in_tests and stem not in _SUPPORT and "." in path else None


def _distance(test: str, source: str) -> int:
    """The directories between two files, those for tests and the roots of sources not counted.

    `tests/cart/test_price.py` is one away from `shop/cart/price.py`: they end alike.
    """
    one, other = _plain_folders(test), _plain_folders(source)
    return min(folders_between(one, other), folders_between(one[::-1], other[::-1]))


def _plain_folders(path: str) -> list[str]:
    return [part for part in path.split("/")[:-1] if part not in _UNCOUNTED]


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def _suffix(path: str) -> str:
    return path.rpartition(".")[2]
