"""SIGKILL after the last item and before the worktrees are removed: later commands remove them."""

import json
import signal
import subprocess
import sys

import pytest

from tests.cli.agent_projects import agent_project, processes_of
from tests.cli.shell import PATIENCE, unmeasured
from tests.worktrees.repositories import left_in, look

CODE = """
open(os.environ["NOTES"] + "/ran", "a").write(task + "\\n")
open("own-" + task, "w").write("by " + task + "\\n")
end("did " + task, cost=0.25)
"""
# A driver that is killed when its items are done: before its run has ended, or after that.
KILLED = """
import os, signal, sys
from abreast.cli.jobs.map.driver import MapDriver
from abreast.cli.main import main
from abreast.worktrees.pool import Worktrees

def die(self):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv.pop(1) == "running":
    MapDriver.unfinished = die
else:
    Worktrees._close_slots = die
sys.argv[0] = "abreast"
main()
"""
WORDS = ("map", "--agent", "stub", "--worktree", "--prompt", "{}", "--key", "{}", "-P", "2")


@pytest.fixture
def project(tmp_path, warm):
    return agent_project(tmp_path, warm, CODE)


def kill(project, tmp_path, when):
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, when, *WORDS],
        cwd=project.folder,
        env=unmeasured(project.environment),
        input=b"a\nb\n",
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended
    assert any(path.endswith("/own-a") for path in left_in(tmp_path / "cache"))


def check_all_is_there(project, tmp_path, before):
    assert left_in(tmp_path / "cache") == []
    assert processes_of(tmp_path) == []
    assert (tmp_path / "notes/ran").read_text().split() in (["a", "b"], ["b", "a"])
    assert project("plan", "apply", "map-1").code == 0
    assert (project.folder / "own-b").read_text() == "by b\n"
    assert look(project.folder / ".git") == before


@pytest.mark.parametrize(
    ("when", "words", "said"),
    [
        ("running", ("resume", "map-1"), "2 done"),
        ("ended", ("resume", "map-1"), "map-1 is done"),
        ("ended", ("resume",), "nothing to resume"),
        ("ended", ("map", "--name", "other", "--", "true"), ""),
    ],
)
def test_what_a_killed_driver_has_left_is_removed_and_its_results_are_kept(
    project, tmp_path, when, words, said
):
    before = look(project.folder / ".git")
    kill(project, tmp_path, when)
    ran = project(*words, given="x\n")
    assert ran.code == 0, ran
    assert said in ran.err
    check_all_is_there(project, tmp_path, before)
    assert json.loads(project("show", "map-1", "--json").out)["items"]["done"] == 2


def test_elsewhere_nothing_is_removed(project, tmp_path):
    kill(project, tmp_path, "ended")
    (tmp_path / "else").mkdir()
    assert project("map", "--", "true", given="x\n", cwd=tmp_path / "else").code == 0
    assert left_in(tmp_path / "cache") != []
    assert project("map", "-q", "--name", "other", "--", "true", given="x\n").code == 0
    assert left_in(tmp_path / "cache") == []
