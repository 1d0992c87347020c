"""What parts did is shown as diffs; conflicts are chosen file by file; parts become branches."""

import json

import pytest

from tests.cli.commands.test_plan import project

__all__ = ["project"]

PARTS = """
plan:
  parts:
    - {id: one, name: the first, files: [src/alpha/m1.py]}
    - {id: two, name: the second, files: [src/alpha/m2.py]}
"""
# Both create new.py, with lines that differ; one also changes its own file.
WORK = """
printf 'a\\n%s\\nz\\n' "$ABREAST_SUBPLAN" > src/alpha/new.txt
if [ $ABREAST_SUBPLAN = one ]; then echo "y = 1" >> src/alpha/m1.py; fi
"""


@pytest.fixture
def run(project):
    """A run of two parts that both created new.txt."""
    project.git("commit", "-qam", "two")
    project.file("plan.yaml", PARTS)
    said = project("plan", "run", "plan.yaml", "--command", WORK)
    assert said.code == 0, said
    return project


def test_what_parts_did_is_a_diff_that_git_applies(run):
    said = run("plan", "diff", "last", "one")
    assert said.code == 0
    assert said.out.count("diff --git") == 2
    (run.folder / "one.patch").write_text(said.out)
    run.git("apply", "one.patch")
    assert (run.folder / "src/alpha/m1.py").read_text() == "x = 1\ny = 1\n"
    both = run("plan", "diff", "last").out
    assert [line for line in both.splitlines() if line.startswith("#")] == [
        "# part one  the first",
        "# part two  the second",
    ]
    found = json.loads(run("plan", "diff", "last", "the second", "--json").out)
    (part,) = found["parts"]
    assert part["files"] == [{"path": "src/alpha/new.txt", "added": 3, "removed": 0}]
    assert "+two" in part["diff"]
    stat = run("plan", "diff", "last", "--stat")
    assert [line.split() for line in stat.out.splitlines()][1:] == [
        ["one", "src/alpha/m1.py", "1", "0"],
        ["one", "src/alpha/new.txt", "3", "0"],
        ["two", "src/alpha/new.txt", "3", "0"],
    ]
    said = run("plan", "diff", "last", "three")
    assert (said.code, "there are one, two" in said.err) == (2, True)


def test_a_conflict_is_shown_with_markers_and_chosen_file_by_file(run):
    new = "src/alpha/new.txt"
    said = run("plan", "apply", "last", "--json")
    found = json.loads(said.out)
    assert said.code == 1
    assert found["conflicts"] == [
        {
            "file": new,
            "kind": "create/create",
            "parts": ["one", "two"],
            "detail": "they created it with different content",
        }
    ]
    said = run("plan", "resolve", "last", new)
    assert (said.code, said.err) == (0, "")
    assert said.out == ("<<<<<<< one\na\none\nz\n||||||| base\n=======\na\ntwo\nz\n>>>>>>> two\n")
    assert said.out in run("plan", "diff", "last", "--conflicts").out
    # A text with markers in it is refused, one without is kept.
    (run.folder / "mine").write_text(said.out)
    take = ("plan", "resolve", "last", new, "--take")
    refused = run(*take, "edit", "--from", "mine")
    assert (refused.code, "line 1 still has a marker" in refused.err) == (2, True)
    assert run(*take, "edit").code == 2
    assert run(*take, "three").code == 2
    assert run("plan", "resolve", "last", "src/beta/m0.py", "--take", "source").code == 2
    for choice, text in (("two", "a\ntwo\nz\n"), ("source", None), ("edit", "mine\n")):
        (run.folder / "mine").write_text("mine\n")
        said = run(*take, choice, *(("--from", "mine") if choice == "edit" else ()))
        assert said.code == 0, said
        assert "no conflict is left" in said.err
        said = run("plan", "apply", "last", "--json")
        assert said.code == 0, said
        assert json.loads(said.out)["resolved"] == {new: choice}
        place = run.folder / new
        assert (place.read_text() if place.exists() else None) == text
        assert (run.folder / "src/alpha/m1.py").read_text() == "x = 1\ny = 1\n"
        assert run("plan", "undo").code == 0
        assert not place.exists()


def test_a_choice_holds_as_long_as_all_sides_are_what_they_were(run):
    new = "src/alpha/new.txt"
    assert run("plan", "resolve", "last", new, "--take", "one").code == 0
    run.file(new, "of the user\n")
    said = run("plan", "apply", "last")
    assert said.code == 1
    assert "what was chosen was for other contents" in said.err
    assert (run.folder / new).read_text() == "of the user\n"
    # Chosen again, it replaces the user's own file, and an undo brings that back.
    assert run("plan", "resolve", "last", new, "--take", "one").code == 0
    assert run("plan", "apply", "last").code == 0
    assert (run.folder / new).read_text() == "a\none\nz\n"
    assert run("plan", "undo").code == 0
    assert (run.folder / new).read_text() == "of the user\n"


def test_each_part_is_a_branch_with_one_commit_and_the_tree_is_left(run):
    run.file("src/alpha/m0.py", "x = 'not committed'\n")
    before = run.git("status", "--porcelain")
    said = run("plan", "apply", "last", "--branches", "--json")
    assert said.code == 0, said
    made = json.loads(said.out)["branches"]
    assert [one["name"] for one in made] == ["abreast/plan-1/one", "abreast/plan-1/two"]
    assert run.git("diff", "--name-only", "HEAD", "abreast/plan-1/one").split() == [
        "src/alpha/m1.py",
        "src/alpha/new.txt",
    ]
    assert run.git("show", "abreast/plan-1/two:src/alpha/new.txt") == "a\ntwo\nz\n"
    assert run.git("rev-list", "--count", "HEAD..abreast/plan-1/two") == "1\n"
    assert run.git("log", "-1", "--format=%s", "abreast/plan-1/one").startswith("the first: ")
    assert run.git("status", "--porcelain") == before
    assert run("plan", "apply", "last", "--branches").code == 0  # the same once more
    run.git("branch", "-f", "abreast/plan-1/one", "HEAD")
    said = run("plan", "apply", "last", "--branches")
    assert (said.code, "is there with another content" in said.err) == (2, True)


def test_a_branch_has_nothing_that_is_not_committed(project):
    project.file("plan.yaml", PARTS.replace("m1.py", "m0.py"))  # m0.py is changed, not committed
    work = "echo z >> src/alpha/m0.py"
    assert project("plan", "run", "plan.yaml", "--command", work, "--rounds", "1").code == 0
    said = project("plan", "apply", "last", "--branches")
    assert (said.code, said.err.count("\n")) == (2, 1)
    said = project("plan", "apply", "last", "--branches", "--outside", "allow")
    assert (said.code, "commit it, then make the branches" in said.err) == (2, True)
    assert "abreast" not in project.git("branch", "--list", "--all")
