"""A crashing store kills its process exactly before or after the chosen commit."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from abreast.testing import crash_at

class Store:
    url = "a store"
    def commit(self, run_id, epoch, events, spent):
        print("written", flush=True)

store = crash_at(Store(), commit=int(sys.argv[1]), when=sys.argv[2])
assert store.url == "a store"
for _ in range(3):
    store.commit("run", 1, [], {})
"""


@pytest.mark.parametrize(
    ("commit", "when", "written"),
    [(1, "before", 0), (1, "after", 1), (3, "before", 2), (3, "after", 3)],
)
def test_the_process_dies_by_sigkill_before_or_after_that_commit(commit, when, written):
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(commit), when],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert child.returncode == -signal.SIGKILL
    assert child.stdout.split() == ["written"] * written


def test_a_store_whose_time_has_not_come_goes_on():
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT, "9", "before"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (child.returncode, child.stdout.split()) == (0, ["written"] * 3)
