"""Plans of repositories with a submodule, and with unusual characters in file names.

And what is counted.
"""

import json
import os
import subprocess

import pytest

from tests.cli.commands.test_plan import project
from tests.jobs.plan.repositories import QUIET, repository

__all__ = ["project"]


@pytest.fixture
def with_submodule(project, tmp_path):
    project.environment["ABREAST_CACHE"] = str(tmp_path / "cache")
    inner = repository(tmp_path / "inner", {"s.txt": "inner\n"})
    add = [
        "git",
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(inner),
        "src/vendor/sub",
    ]
    subprocess.run(add, cwd=project.folder, check=True, env=QUIET, capture_output=True)
    project.git("commit", "-qam", "with a submodule")
    return project


def test_a_submodule_is_no_file_of_a_plan_and_that_is_said(with_submodule):
    found = json.loads(with_submodule("plan", "show", "src", "--json").out)
    assert "vendor/sub" not in found["nodes"][0]["files"]
    assert len(found["nodes"][0]["files"]) == 24
    assert "1 submodule is left out" in with_submodule("plan", "show", "src").out
    said = with_submodule("plan", "run", "src", "--command", "true")
    assert "4 of 4 subplans done" in said.err
    assert "src/vendor/sub: a submodule, left empty" in said.err


@pytest.mark.parametrize("there", [True, False])
def test_a_file_written_in_the_place_of_a_submodule_is_refused(with_submodule, there):
    project = with_submodule
    if not there:
        project.git("submodule", "deinit", "-f", "src/vendor/sub")
    command = (
        "case $ABREAST_SUBPLAN in alpha*) rm -rf vendor/sub; mkdir -p vendor; "
        "echo x > vendor/sub;; esac"
    )
    assert project("plan", "run", "src", "--command", command).code == 0
    said = project("plan", "apply", "plan")
    assert said.code == 1, said
    assert "vendor/sub: written by alpha-" in said.out
    assert "owned by a submodule" in said.out
    assert "1 thing stands in the way" in said.err
    assert (project.folder / "src/vendor/sub").is_dir()
    assert (project.folder / "src/vendor/sub/s.txt").exists() == there


def test_what_the_system_refuses_is_one_sentence_and_the_tree_is_as_it_was(project):
    project.file(".gitignore", ".abreast\n*.cache\n")
    project.git("commit", "-qam", "ignores")
    command = "case $ABREAST_SUBPLAN in alpha*) rm -r alpha; echo x > alpha;; esac"
    assert project("plan", "run", "src", "--command", command).code == 0
    project.file("src/alpha/mine.cache", "ignored by git\n")
    said = project("plan", "apply", "plan", "--no-gate", "--outside", "request", "--leave-requests")
    assert said.code == 1
    assert "nothing was written: " in said.err
    assert "directory not empty" in said.err
    assert "internal" not in said.err
    assert (project.folder / "src/alpha/m0.py").exists()


ODD = [
    "new\nline.py",
    'quo"te.py',
    "sin'gle.py",
    os.fsdecode(b"non\xff.py"),
    "-dash.py",
    "sp ace.py",
    "ä.py",
    "$HOME.py",
]


@pytest.fixture
def odd(project, tmp_path):
    project.environment["ABREAST_CACHE"] = str(tmp_path / "cache")
    for folder in ("-f", "new\nline", os.fsdecode(b"non\xfe"), "\x1b[2J", " "):
        for name in ODD:
            project.file(f"odd/{folder}/{name}", f"x = {folder + name!a}\n" * 9)
    project.git("add", "-A")
    project.git("commit", "-qm", "odd")
    return project


def test_names_with_anything_in_them_are_worked_on_merged_and_taken_back(odd):
    command = r"""
    for f in {files}; do case $f in -*) exit 9;; esac; echo "# seen" >> "$f"; done
    while IFS= read -r f; do [ -e "$f" ] || exit 8; done < "$ABREAST_FILE_LIST"
    tr -dc '\000' < "$ABREAST_FILE_LIST0" | wc -c
    mv "$ABREAST_SCOPE/new
line.py" "$ABREAST_SCOPE/moved
line.py"
    """
    said = odd("plan", "run", "odd", "--min-files", "2", "--command", command, "--json")
    assert said.code == 0, said
    found = json.loads(said.out)["subplans"]
    assert [int(one["value"]["stdout"]) for one in found] == [len(ODD)] * 5
    assert len({path for one in found for path in one["value"]["files"]}) == 5 * len(ODD)
    said = odd("plan", "apply", "plan")
    assert said.code == 0, said
    assert f"{5 * len(ODD)} files written" in said.err  # one that is renamed is one
    changed = odd.git("diff", "--stat", "--", "odd").splitlines()[-1]
    assert changed.startswith(f" {5 * len(ODD)} files changed")
    said = odd("plan", "undo")
    assert said.code == 0, said
    assert odd.git("status", "--porcelain", "--", "odd") == ""


def test_a_conflict_in_a_file_with_an_odd_name_is_one_printable_line(odd):
    assert (
        odd(
            "plan",
            "run",
            "odd",
            "--min-files",
            "2",
            "--command",
            'for f in {files}; do echo y > "$f"; done',
        ).code
        == 0
    )
    odd.file("odd/\x1b[2J/new\nline.py", "mine\n")
    said = odd("plan", "apply", "plan", "--no-gate")
    assert said.code == 1
    (line,) = said.lines
    assert line.startswith(r"\x1b[2J/new\nline.py: content conflict")
    assert line.isprintable()


def test_files_that_were_done_again_after_the_tree_was_divided_otherwise_count_once(project):
    each = 'for f in {files}; do echo "# $ABREAST_SUBPLAN" >> "$f"; done'
    command = f"{each}; case $ABREAST_SCOPE in beta*) [ -e beta/fixed.py ];; esac"
    assert project("plan", "run", "src", "--command", command).code == 1
    for number in range(12):
        project.file(f"src/alpha/deep/n{number}.py", "x = 1\n")
        project.file(f"src/alpha/other/n{number}.py", "x = 1\n")
    project.file("src/beta/fixed.py", "x = 1\n")
    project.git("add", "-A")
    leaves = set(json.loads(project("plan", "show", "src", "--json").out)["score"]["tokens"])
    said = project("plan", "resume", "plan", "--json")
    assert said.code == 0, said
    said = project("plan", "apply", "plan", "--json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert set(found["merged"]) == leaves
    assert len(found["written"]) == len(set(found["written"])) == 24 + 24 + 1
    (note,) = found["notes"]
    assert note.startswith("alpha-")
    assert "left out, as its files were done again" in note
    assert (project.folder / "src/alpha/m1.py").read_text().count("#") == 1
