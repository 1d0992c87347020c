"""The child's modules: compiled for the same Python version, as source for all others."""

import subprocess
import sys

from abreast.jobs.candidates.behaviour.traced_run import write_bundle

IMPORTED = """
import sys
sys.path.insert(1, sys.argv[1])
import _abreast_child.child.timed as one
print(one.__file__)
"""


def imported(place):
    return subprocess.run(
        [sys.executable, "-B", "-c", IMPORTED, str(place)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_our_own_interpreter_has_nothing_to_compile(tmp_path):
    write_bundle(tmp_path)
    for text in tmp_path.rglob("*.py"):
        if text.read_text("utf-8"):
            text.write_text("raise SystemExit('compiled anew')", "utf-8")
    ended = imported(tmp_path)
    assert (ended.returncode, ended.stdout.strip()) == (
        0,
        str(tmp_path / "_abreast_child" / "child" / "timed.py"),
    )


def test_another_one_compiles_the_texts(tmp_path):
    write_bundle(tmp_path)
    compiled = list(tmp_path.rglob("*.pyc"))
    for one in compiled:  # as from another version of Python
        one.write_bytes(bytes(4) + one.read_bytes()[4:])
    ended = imported(tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(compiled) == sum(bool(text.read_text("utf-8")) for text in tmp_path.rglob("*.py"))
