"""The order of the slow tests: the longest first.

Workers begin with equal slices of all tests and take from each other's ends: a long test at the
end of a slice would be begun when the others have nothing left.
"""

from itertools import islice
from pathlib import Path

_LONGEST = Path(__file__).with_name("longest.txt")


def longest_first(items, workers):
    """The tests, with those that tests/longest.txt lists at the beginning of slices."""
    lines = _LONGEST.read_text("utf-8").splitlines()
    groups = {line: [] for line in lines if not line.startswith("#")}
    rest = []
    for item in items:
        test = item.nodeid.partition("[")[0]
        groups.get(test, groups.get(test.partition("::")[0], rest)).append(item)
    others = iter(rest)
    found = [group for group in groups.values() if group]
    ordered = []
    for worker in range(workers):
        share = [item for group in found[worker::workers] for item in group]
        ordered += share
        ordered += islice(others, max(0, len(items) // workers - len(share)))
    return [*ordered, *others]
