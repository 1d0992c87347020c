"""The start of the command, before any of its own code runs."""

import os
import signal
import subprocess
import sys

import pytest

from tests.cli.shell import PATIENCE, plain_environment, unmeasured

INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


def start(folder, imported):
    """Start it with a `click` that does this when it is imported."""
    (folder / "click.py").write_text(imported)
    environment = unmeasured(plain_environment())
    paths = f"{folder}{os.pathsep}{environment['PYTHONPATH']}"
    return subprocess.run(
        [sys.executable, "-m", "abreast", "version"],
        env={**environment, "PYTHONPATH": paths},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_ctrl_c_while_modules_are_imported_ends_it_without_a_traceback(tmp_path):
    said = start(tmp_path, INTERRUPTED)
    assert (said.returncode, said.stderr) == (-signal.SIGINT, "")


@pytest.mark.parametrize(
    "error", ["ImportError('zlib: failed to map segment')", "MemoryError()", "OSError(24, 'many')"]
)
def test_a_module_that_can_not_be_loaded_is_said_in_one_sentence(tmp_path, error):
    said = start(tmp_path, f"raise {error}\n")
    assert said.returncode == 1
    assert said.stderr.startswith(f"abreast: it can't start: {error.partition('(')[0]}")
    assert said.stderr.count("\n") == 1
