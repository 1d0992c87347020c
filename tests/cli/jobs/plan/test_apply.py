"""`abreast plan apply` and `undo`: all or nothing, also when killed, and no silent overwriting."""

import json
import signal

import pytest

from tests.cli.commands.test_plan import project
from tests.jobs.plan.repositories import on_disk

__all__ = ["project"]

EDIT = (
    'echo "# by $ABREAST_SUBPLAN" >> $ABREAST_SCOPE/m1.py; rm $ABREAST_SCOPE/m2.py; '
    "echo new > $ABREAST_SCOPE/new.py"
)
# abreast, killed by SIGKILL before the step of a number of an apply or undo.
KILLED = """
import os, signal, sys
from abreast.worktrees.merge.disk import Disk
left = int(os.environ["STEPS"])

def counted(name):
    real = getattr(Disk, name)
    def step(self, *given):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, *given)
    setattr(Disk, name, step)

for name in ("make_folder", "write", "link", "set_mode", "move", "place", "remove_folder", "bring"):
    counted(name)
from abreast.__main__ import main
sys.exit(main())
"""


def tree(project):
    """What a user has in the tree: all but what abreast keeps beside it."""
    found = on_disk(project.folder / "src")
    return {path: facts for path, facts in found.items() if not path.startswith(".abreast")}


def killed(project, steps, *words):
    script = project.file("../killed.py", KILLED)
    done = project(*words, program=str(script), STEPS=str(steps))
    assert done.code == -signal.SIGKILL, done


@pytest.fixture
def ran(project):
    project.environment["ABREAST_CACHE"] = str(project.folder.parent / "cache")
    said = project("plan", "run", "src", "--command", EDIT)
    assert said.code == 0, said
    return project


COMMANDS = {
    "show": ("plan", "show", "src"),
    "show of the directory above": ("plan", "show", "."),
    "show of one beneath": ("plan", "show", "src/alpha"),
    "score": ("plan", "score", "src"),
    "run": ("plan", "run", "src", "--command", "cat alpha/m0.py beta/m2.py"),
    "apply": ("plan", "apply", "plan", "--dry-run"),
    "resume": ("plan", "resume"),
    "resume of a run": ("plan", "resume", "plan-1"),
    "a file": ("run", "plan.yaml"),
}


def test_the_next_command_of_a_plan_takes_a_killed_apply_back(ran):
    ran.file("plan.yaml", "plan:\n  path: src\n  command: cat alpha/m0.py\n")
    before = tree(ran)
    for name, words in COMMANDS.items():
        # With 4 x 3 files: old ones are away, and no new one is there.
        killed(ran, 24, "plan", "apply", "plan-1")
        assert tree(ran) != before
        said = ran(*words)
        assert said.code == 0, (name, said)
        assert "had been cut off, and was taken back" in said.err, name
        assert tree(ran) == before, name
    assert "cut off" not in ran("plan", "show", "src").err


def test_a_killed_apply_is_taken_back_and_applied_by_the_next(ran):
    for steps in (0, 9, 17, 22, 26, 34):
        killed(ran, steps, "plan", "apply", "plan")
        said = ran("plan", "apply", "plan", "--json")
        assert len(json.loads(said.out)["written"]) == 12, steps
        assert (ran.folder / "src/gamma/new.py").exists()
        assert not (ran.folder / "src/gamma/m2.py").exists()
        assert ran("plan", "undo").code == 0
        assert not (ran.folder / "src/gamma/new.py").exists()


def test_an_apply_is_undone_and_can_be_applied_again(ran):
    before = tree(ran)
    refs = ran.git("--git-dir", "src/.abreast/plan.git", "for-each-ref")
    assert ran("plan", "apply", "plan").code == 0
    after = {path: facts[:2] for path, facts in tree(ran).items()}
    assert json.loads(ran("plan", "undo", "--dry-run", "--json").out)["restored"] == []
    said = ran("plan", "undo", "--json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert (found["run"], len(found["restored"]), found["changed"]) == ("plan-1", 12, [])
    assert tree(ran) == before
    assert (
        ran.git("--git-dir", "src/.abreast/plan.git", "for-each-ref") == refs
    )  # what was done is held again
    said = ran("plan", "undo", "plan")
    assert (said.code, "taken back already" in said.err) == (2, True)
    assert ran("plan", "undo").code == 2
    assert ran("plan", "apply", "plan").code == 0
    assert {path: facts[:2] for path, facts in tree(ran).items()} == after


def test_what_was_changed_since_is_named_and_stops_an_undo(ran):
    assert ran("plan", "apply", "plan").code == 0
    ran.file("src/beta/m1.py", "mine\n")
    ran.file("src/beta/m2.py", "mine, too\n")
    before = tree(ran)
    said = ran("plan", "undo")
    assert (said.code, said.lines) == (
        1,
        ["beta/m1.py: changed since it was applied", "beta/m2.py: changed since it was applied"],
    )
    assert tree(ran) == before
    assert json.loads(ran("plan", "undo", "plan", "--json").out)["changed"] == [
        "beta/m1.py",
        "beta/m2.py",
    ]


def test_a_killed_undo_is_taken_back_and_undone_by_the_next(ran):
    before = tree(ran)
    assert ran("plan", "apply", "plan").code == 0
    applied = tree(ran)
    killed(ran, 16, "plan", "undo")
    assert tree(ran) != applied
    assert "was taken back" in ran("plan", "show", "src").err
    assert tree(ran) == applied
    killed(ran, 16, "plan", "undo")
    said = ran("plan", "undo")
    assert said.code == 0, said
    assert tree(ran) == before


def test_an_apply_with_a_failed_part_is_refused_unless_it_may_be_partial(project):
    command = f"case $ABREAST_SUBPLAN in beta*) exit 1;; *) {EDIT};; esac"
    assert project("plan", "run", "src", "--command", command).code == 1
    before = tree(project)
    said = project("plan", "apply", "plan", "--json")
    assert said.code == 1
    (line,) = json.loads(said.out)["blocked"]
    assert line.startswith("beta-")
    assert "failed" in line
    assert "--partial" in line
    assert tree(project) == before
    said = project("plan", "apply", "plan", "--partial")
    assert said.code == 0, said
    assert "1 of 4 subplans are not done, and left out" in said.err
    assert (project.folder / "src/alpha/new.py").exists()
    assert not (project.folder / "src/beta/new.py").exists()


def test_a_file_added_since_is_no_part_that_failed(ran):
    ran.file("src/epsilon/m0.py", "x = 1\n")
    ran.git("add", "-A")
    assert ran("plan", "apply", "plan").code == 0


MOVE = """
case $ABREAST_SUBPLAN in
  alpha*) mv alpha/m1.py beta/moved.py; echo '# more' >> alpha/m3.py;;
  gamma*) mv beta/m2.py gamma/taken.py;;
esac
"""


def test_a_rename_to_another_part_s_directory_loses_no_file(project):
    project.environment["ABREAST_CACHE"] = str(project.folder.parent / "cache")
    texts = {"alpha/m1.py": "x = 1  # of alpha\n" * 9, "beta/m2.py": "x = 2  # of beta\n" * 9}
    for path, text in texts.items():
        project.file(f"src/{path}", text)
    assert project("plan", "run", "src", "--command", MOVE).code == 0
    asked = ("plan", "apply", "plan", "--outside", "request")
    blocked = json.loads(project(*asked, "--json").out)["blocked"]
    assert [line.partition(" by ")[0] for line in blocked] == [
        "alpha/m1.py: renamed to beta/moved.py",
        "beta/m2.py: renamed to gamma/taken.py",
    ]
    said = project(*asked, "--leave-requests", "--json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert found["written"] == ["alpha/m3.py"]
    assert found["left"] == [line.partition(", which was asked")[0] for line in blocked]
    for path, text in texts.items():
        assert (project.folder / "src" / path).read_text() == text
    assert not (project.folder / "src/beta/moved.py").exists()
    assert not (project.folder / "src/gamma/taken.py").exists()


def test_last_wins_lists_what_it_overwrites_and_never_overwrites_the_user_s_own(project):
    project.environment["ABREAST_CACHE"] = str(project.folder.parent / "cache")
    command = (
        'echo "by $ABREAST_SUBPLAN" > shared.py'  # a new file beside all parts: each may write it
    )
    assert project("plan", "run", "src", "--command", command).code == 0
    said = project("plan", "apply", "plan", "--strategy", "last-wins", "--no-gate", "--json")
    assert said.code == 0, said
    overwritten = json.loads(said.out)["overwritten"]
    assert len(overwritten) == 3
    assert all(
        line.startswith("shared.py: create/create conflict between ") for line in overwritten
    )
    assert (project.folder / "src/shared.py").read_text().startswith("by gamma")
    assert project("plan", "undo").code == 0
    said = project("plan", "apply", "plan", "--strategy", "last-wins", "--no-gate")
    assert sum(line.startswith("overwritten: shared.py") for line in said.lines) == 3
    assert project("plan", "undo").code == 0
    project.file("src/shared.py", "mine\n")
    said = project("plan", "apply", "plan", "--strategy", "last-wins", "--no-gate")
    assert said.code == 1
    assert "create/create conflict between source and " in said.out
    assert (project.folder / "src/shared.py").read_text() == "mine\n"
