"""What CI measures of the suite: to count the lines of a test takes as long as to run it.

A test is measured unless tests/unmeasured.txt lists it or it is of the repository; its children
are if it is below, too. The floors that `make coverage` holds are of what is measured: a line that
only an unmeasured test reaches counts as one that no test reaches.
"""

import os
import sys
import warnings
from pathlib import Path

import pytest

# Tests whose children reach lines that nothing else does. To measure a child takes 0.2 s of CPU.
WITH_CHILDREN = (
    "tests/cli/",
    "tests/executors/",
    "tests/jobs/candidates/",
    "tests/testing/",
    "tests/worktrees/",
)
# Tests of the repository itself, which reach nothing that others don't.
OF_THE_REPOSITORY = (
    "tests/test_commits.py",
    "tests/test_docker.py",
    "tests/test_repository.py",
    "tests/test_requirements.py",
    "tests/test_tree.py",
    "tests/test_warm.py",
)
FIRST_WORKER = "gw0"
_UNMEASURED = Path(__file__).with_name("unmeasured.txt")


class Measuring:
    """Coverage of this process and of its children, where there is any: paused, and taken up again.

    Until the first test, this process is measured and its children are not; of several workers,
    which all import and collect the same, only the first is.
    """

    key = pytest.StashKey["Measuring"]()

    def __init__(self, *, keep_variables):
        coverage = sys.modules.get("coverage")
        self._coverage = coverage and coverage.Coverage.current()
        self._unmeasured = {*_UNMEASURED.read_text("utf-8").splitlines()}
        self._running = True
        if os.environ.get("PYTEST_XDIST_WORKER", FIRST_WORKER) != FIRST_WORKER:
            self._measure(False)
        self.variables = {}  # that make a child measure itself
        if not keep_variables:
            names = [name for name in os.environ if name.startswith("COVERAGE_")]
            self.variables = {name: os.environ.pop(name) for name in names}

    def begin(self, test):
        """Measure this test, or not; the variables that measure its children."""
        listed = test.partition("[")[0] in self._unmeasured
        measured = not listed and not test.startswith(OF_THE_REPOSITORY)
        self._measure(measured)
        return self.variables if measured and test.startswith(WITH_CHILDREN) else {}

    def _measure(self, measured):
        if not self._coverage or measured is self._running:
            return
        self._running = measured
        if measured:
            with warnings.catch_warnings(action="ignore"):  # abreast is imported already
                self._coverage.start()
        else:
            self._coverage.stop()
