"""Small projects with a slow function and its tests."""

from tests.worktrees.repositories import make_repository

SLOW = '''\
"""Sums."""


def pairs(numbers, wanted):
    """How many pairs of different places have that sum."""
    found = 0
    for at, one in enumerate(numbers):
        for other in numbers[at + 1 :]:
            if one + other == wanted:
                found += 1
    return found
'''
FAST = """\
from collections import Counter


def pairs(numbers, wanted):
    seen = Counter()
    found = 0
    for one in numbers:
        found += seen[wanted - one]
        seen[one] += 1
    return found
"""
WRONG = """\
def pairs(numbers, wanted):
    return len({one for one in numbers if wanted - one in numbers}) // 2
"""
TESTS = """\
from sums import pairs


def test_few():
    assert pairs([1, 2, 3, 4, 3], 6) == 2


def test_many():
    assert pairs([at % 50 for at in range(240)], 49) == 575


def test_none():
    assert pairs([], 1) == 0
"""


# The plugins installed here, and those of pytest itself that no test needs, take longer to load
# than a small project's tests take to run.
CONFIGS = {"pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"}
PLUGINS = (
    *("hypothesispytest", "asyncio", "anyio", "timeout", "xdist", "xdist.looponfail"),
    *("debugging", "doctest", "junitxml", "legacypath", "pastebin", "setuponly", "setupplan"),
    *("stepwise", "subtests", "threadexception", "unraisableexception"),
)
QUICK = f"[pytest]\naddopts = {' '.join(f'-p no:{name}' for name in PLUGINS)}\n"


def quick(files):
    """Add a pytest configuration that starts quickly, unless the files have one."""
    return files if CONFIGS & files.keys() else {"pytest.ini": QUICK, **files}


def make_sums(place, **more):
    return make_repository(place, quick({"sums.py": SLOW, "test_sums.py": TESTS, **more}))
