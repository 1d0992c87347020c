"""Broken input, in short: `make fuzz` makes ten thousand tries of each kind."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.shell import PATIENCE, unmeasured

ROOT = Path(__file__).parents[2]


def test_broken_files_settings_arguments_and_output_are_refused_in_one_sentence(tmp_path):
    home = {"HOME": str(tmp_path), "ABREAST_STATE": str(tmp_path), "ABREAST_CACHE": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.chaos.fuzz", "--tries", "40", "--seed", "1"],
        cwd=ROOT,
        env={**unmeasured(dict(os.environ)), **home},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert said.returncode == 0, said.stdout
    assert said.stdout.count("40 tries: 0 broken, 0 hung") == 4
