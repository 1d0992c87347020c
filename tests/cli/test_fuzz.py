"""Broken input, in short: `make fuzz` makes 10,000 tries of each kind, and 200 commands."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.shell import PATIENCE, unmeasured

ROOT = Path(__file__).parents[2]
FEW = ("--tries", "25", "--commands", "1", "--seed", "1")


def test_broken_input_of_every_kind_breaks_nothing_and_hangs_nothing():
    said = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.fuzz",
            *["--tries", "25", "--commands", "1", "--seed", "1"],
        ],
        cwd=ROOT,
        env=unmeasured(dict(os.environ)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert said.returncode == 0, said.stdout
    assert said.stdout.count("25 tries: 0 broken, 0 hung") == 8
    assert said.stdout.count("1 tries: 0 broken, 0 hung") == 8
