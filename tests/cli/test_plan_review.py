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
        again = run("plan", "apply", "last")
        assert (again.code, "nothing to write" in again.err) == (0, True), again
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


def branches(project):
    """The branches that `apply --branches` makes, by part."""
    said = project("plan", "apply", "last", "--branches", "--json")
    assert said.code == 0, said
    return {one["part"]: one for one in json.loads(said.out)["branches"]}


def merged(project, names):
    """The tree after a merge of these branches, one after the other, into a branch of HEAD."""
    project.git("checkout", "-q", "-b", "into", "HEAD")
    for name in names:
        project.git("merge", "-q", "--no-edit", name)
    tree = project.git("rev-parse", "HEAD^{tree}")
    project.git("checkout", "-q", "-")
    project.git("branch", "-q", "-D", "into")
    return tree


def test_parts_that_share_nothing_are_branches_of_head_to_be_merged_in_any_order(project):
    project.git("commit", "-qam", "two")
    work = ("--command", "echo y >> $(head -1 $ABREAST_FILE_LIST)", "--include", "src")
    assert project("plan", "run", *work).code == 0
    project.file("src/alpha/m3.py", "x = 'not committed'\n")
    before = project.git("status", "--porcelain")
    made = branches(project)
    assert [one["base"] for one in made.values()] == ["HEAD"] * 4
    assert {one["files"] for one in made.values()} == {1}
    part, first = next(iter(made.items()))
    assert first["name"] == f"abreast/plan-1/{part}"
    assert project.git("diff", "--name-only", "HEAD", first["name"]) == "src/alpha/m0.py\n"
    assert project.git("rev-list", "--count", f"HEAD..{first['name']}") == "1\n"
    assert project.git("log", "-1", "--format=%s", first["name"]).startswith("src/alpha/: echo")
    assert project.git("status", "--porcelain") == before
    assert branches(project) == made  # the same once more
    project.git("checkout", "-q", "--", ".")
    names = [one["name"] for one in made.values()]
    trees = {merged(project, names), merged(project, names[::-1])}
    assert project("plan", "apply", "last").code == 0
    project.git("add", "src")
    assert trees == {project.git("write-tree")}
    project.git("branch", "-f", first["name"], "HEAD")
    said = project("plan", "apply", "last", "--branches")
    assert (said.code, "is there with another content" in said.err) == (2, True)


def test_parts_that_share_a_file_are_stacked_with_what_was_chosen(run):
    new = "src/alpha/new.txt"
    said = run("plan", "apply", "last", "--branches")
    assert (said.code, "abreast plan resolve plan-1 src/alpha/new.txt" in said.err) == (2, True)
    assert "abreast" not in run.git("branch", "--list", "--all")
    (run.folder / "mine").write_text("mine\n")
    take = ("plan", "resolve", "last", new, "--take")
    assert run(*take, "edit", "--from", "mine").code == 0
    made = branches(run)
    assert [(one["part"], one["base"]) for one in made.values()] == [
        ("one", "HEAD"),
        ("two", "abreast/plan-1/one"),
    ]
    one, two = "abreast/plan-1/one", "abreast/plan-1/two"
    assert run.git("diff", "--name-only", "HEAD", one).split() == ["src/alpha/m1.py", new]
    assert run.git("show", f"{one}:{new}") == "a\none\nz\n"
    assert run.git("show", f"{two}:{new}") == "mine\n"
    assert run.git("rev-parse", f"{two}^") == run.git("rev-parse", one)
    assert run.git("show", f"{two}:src/alpha/m1.py") == "x = 1\ny = 1\n"
    assert branches(run) == made
    # What was chosen leaves the second part without a change: it needs no branch.
    run.git("branch", "-q", "-D", one, two)
    assert run(*take, "one").code == 0
    assert [*branches(run)] == ["one"]


def test_a_part_that_waited_for_another_is_on_top_of_it(project):
    project.git("commit", "-qam", "two")
    later = "{id: one, name: the first, after: [two]"
    project.file("plan.yaml", PARTS.replace("{id: one, name: the first", later))
    work = "echo y >> $(head -1 $ABREAST_FILE_LIST)"
    assert project("plan", "run", "plan.yaml", "--command", work).code == 0
    said = project("plan", "apply", "last", "--branches")
    assert said.code == 0, said
    assert "1 on top of another, to be merged after it" in said.err
    bases = {one["part"]: one["base"] for one in branches(project).values()}
    assert bases == {"two": "HEAD", "one": "abreast/plan-1/two"}


def test_a_part_that_wrote_outside_has_its_own_branch_and_what_was_chosen_is_the_owners(project):
    project.git("commit", "-qam", "two")
    project.file("plan.yaml", PARTS + "    - {id: other, name: other, files: [src/beta/]}\n")
    work = f"{WORK}\n[ $ABREAST_SUBPLAN != other ] || echo y >> src/beta/m1.py"
    assert project("plan", "run", "plan.yaml", "--command", work).code == 0
    take = ("plan", "resolve", "last", "src/alpha/new.txt", "--take")
    assert project(*take, "other").code == 0
    made = branches(project)
    assert {one["part"]: (one["base"], one["files"]) for one in made.values()} == {
        "one": ("HEAD", 2),
        "two": ("abreast/plan-1/one", 1),
        "other": ("HEAD", 1),
    }
    assert project.git("show", "abreast/plan-1/two:src/alpha/new.txt") == "a\nother\nz\n"


def test_a_branch_has_what_was_committed_since_too(run):
    assert run("plan", "resolve", "last", "src/alpha/new.txt", "--take", "one").code == 0
    run.file("src/alpha/m1.py", "import os\n\n\nx = 1\n")
    run.git("commit", "-qam", "three")
    branches(run)
    assert run.git("show", "abreast/plan-1/one:src/alpha/m1.py") == "import os\n\n\nx = 1\ny = 1\n"


def test_a_branch_has_links_modes_deletions_and_line_ends_as_git_has_them(project):
    project.file(".gitattributes", "*.txt text eol=crlf\n")
    project.file(".gitignore", ".abreast\nkept.log\n")
    project.file("src/alpha/w.txt", "a\r\nb\r\n")
    project.file("src/alpha/kept.log", "ignored, and tracked\n")
    project.git("add", "-f", "src/alpha/kept.log", ".")
    project.git("commit", "-qam", "two")
    work = (
        "case $ABREAST_SCOPE in alpha/) rm alpha/m5.py; chmod +x alpha/m4.py; ln -s m1.py alpha/l;"
        r" printf 'c\r\n' >> alpha/w.txt; echo more >> alpha/kept.log ;; esac"
    )
    said = project("plan", "run", "src", "--command", work)
    assert said.code == 0, said
    (made,) = branches(project).values()
    shown = project.git("diff", "--raw", "--abbrev=4", "HEAD", made["name"]).splitlines()
    assert [(line.split()[1], *line.split()[4:]) for line in shown] == [
        ("100644", "M", "src/alpha/kept.log"),
        ("120000", "A", "src/alpha/l"),
        ("100755", "M", "src/alpha/m4.py"),
        ("000000", "D", "src/alpha/m5.py"),
        ("100644", "M", "src/alpha/w.txt"),
    ]
    assert project.git("cat-file", "blob", f"{made['name']}:src/alpha/w.txt") == "a\nb\nc\n"


def test_a_branch_has_nothing_that_is_not_committed(project):
    project.file("plan.yaml", PARTS.replace("m1.py", "m0.py"))  # m0.py is changed, not committed
    work = "echo z >> src/alpha/m0.py"
    assert project("plan", "run", "plan.yaml", "--command", work, "--rounds", "1").code == 0
    said = project("plan", "apply", "last", "--branches")
    assert (said.code, said.err.count("\n")) == (2, 1)
    said = project("plan", "apply", "last", "--branches", "--outside", "allow")
    assert (said.code, "commit it, then make the branches" in said.err) == (2, True)
    assert "abreast" not in project.git("branch", "--list", "--all")
