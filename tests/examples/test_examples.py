"""Every example runs by itself, in an empty directory, and says what it should."""

import re
import subprocess
import sys

import pytest

from tests.docs.pages import PATIENCE, ROOT, environment

EXAMPLES = ROOT / "examples"


def play(name, folder):
    """Run an example to its end in a directory of its own; what it wrote to stdout."""
    here = folder / "here"
    here.mkdir()
    command = [sys.executable] if name.endswith(".py") else ["sh"]
    ended = subprocess.run(
        [*command, str(EXAMPLES / name)],
        cwd=here,
        env=environment(here),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(here.iterdir()) == [], "it left something behind"
    return ended.stdout


def test_there_is_a_test_for_every_example():
    ours = "".join(path.read_text("utf-8") for path in (ROOT / "tests/examples").glob("test_*.py"))
    tested = set(re.findall(r"(?:(?:play|at_all_widths)\(\"|examples/)([\w.-]+\.\w+)\"", ours))

    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == tested


def test_quickstart_shows_outcomes_in_order_and_runs_nothing_twice(tmp_path):
    said = play("quickstart.py", tmp_path)

    assert re.findall(r"(?m)^(\d{4})  reply", said) == [f"{number:04}" for number in range(12)]
    assert "reply 7 (attempt 2)" in said
    assert "nothing ran a second time" in said


def test_lanes_are_held_and_used_to_the_full(tmp_path):
    said = play("lanes.py", tmp_path)

    assert re.findall(r"(?m)^(\d{4})  (\w+)", said) == [
        (f"{number:04}", "generous" if number % 4 else "strict") for number in range(16)
    ]
    assert "at most 5 at once in generous\nat most 1 at once in strict\n" in said


def test_resume_goes_on_with_the_same_answer(tmp_path):
    assert play("resume.py", tmp_path) == (
        "starts squares-1\n"
        "interrupted after 8 outcomes\n"
        "goes on with squares-1\n"
        "the same as the plain loop: True\n"
        "begun twice: 0 of those that were handed out\n"
        "no more than the width in all: True\n"
    )


def test_commands_over_lines_fail_are_mended_and_exported(tmp_path):
    said = play("map_commands.sh", tmp_path)

    assert "exit code 1\n" in said
    assert "4 beta.txt\n3 gamma.txt\n4 delta.txt\n" in said
    assert said.endswith("\n4\n")


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.glob("*.py"))])
def test_an_example_says_how_it_is_run(name):
    assert f"python examples/{name}" in (EXAMPLES / name).read_text("utf-8").partition('"""\n')[0]
