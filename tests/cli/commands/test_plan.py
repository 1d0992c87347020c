"""`abreast plan`: divides a repository, runs its parts in worktrees, merges all or nothing."""

import json
import subprocess

import pytest


@pytest.fixture
def project(abreast):
    """A git repository of four directories, with a change that isn't committed."""

    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=abreast.folder, check=True, capture_output=True, text=True
        ).stdout

    (abreast.folder / ".git").rmdir()
    git("init", "-q")
    git("config", "user.email", "a@example.org")
    git("config", "user.name", "a")
    for folder in ("alpha", "beta", "delta", "gamma"):
        for number in range(6):
            abreast.file(f"src/{folder}/m{number}.py", f"x = {number}\n")
    abreast.file(".gitignore", ".abreast\n")
    git("add", "-A")
    git("commit", "-qm", "one")
    abreast.file("src/alpha/m0.py", "x = 0\ny = 1\n")
    abreast.git = git
    return abreast


MARK = 'for f in $(cat $ABREAST_FILE_LIST); do echo "# seen" >> "$f"; done'


def test_a_repository_is_divided_and_scored(project):
    found = json.loads(project("plan", "show", "--json").out)
    leaves = [node for node in found["nodes"] if not node["children"]]
    assert sorted(len(node["files"]) for node in leaves) == [1, 6, 6, 6, 6]
    assert project("plan", "show").out.count("6 files") >= 4
    assert "subplans" in project("plan", "score").out
    assert project("plan", "show", "nowhere").err == "abreast: nowhere is no directory\n"
    assert project("plan", "show", "--max-depth", "x").code == 2


def test_subplans_work_in_worktrees_and_are_merged(project):
    before = project.git("status", "--porcelain")
    said = project("plan", "run", "--command", MARK, "--width", "3", "--json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert (len(found["subplans"]), found["peak"]) == (5, 3)
    assert project.git("status", "--porcelain") == before  # the tree itself is not touched
    assert len(project.git("worktree", "list").splitlines()) == 1
    said = project("plan", "apply", "plan")
    assert said.code == 0, said
    assert (project.folder / "src/alpha/m0.py").read_text() == "x = 0\ny = 1\n# seen\n"
    assert (project.folder / "src/gamma/m5.py").read_text() == "x = 5\n# seen\n"


def test_what_failed_runs_again_and_what_is_done_does_not(project):
    command = (
        f'{MARK}; echo x >> "$LOG/$ABREAST_SUBPLAN"; '
        'case $ABREAST_SUBPLAN in src-beta*) [ -e "$LOG/fixed" ];; esac'
    )
    log = project.folder / ".abreast/log"
    log.mkdir(parents=True)
    said = project("plan", "run", "--command", command, LOG=str(log))
    assert said.code == 1
    assert "exit code 1" in said.out
    (log / "fixed").touch()
    said = project("resume", LOG=str(log))
    assert said.code == 0, (said.out, said.err)
    counts = {path.name.split("-")[1]: path.read_text().count("x") for path in log.glob("src-*")}
    assert counts == {"alpha": 1, "beta": 2, "delta": 1, "gamma": 1}


def test_the_files_of_a_subplan_are_words_of_its_command(project):
    project.file("src/alpha/an odd 'name'.py", "x = 9\n")
    said = project("plan", "run", "--command", "sed -i s/x/z/ {files}", "-w", "2")
    assert said.code == 0, said
    assert project("plan", "apply", "plan").code == 0
    assert (project.folder / "src/beta/m3.py").read_text() == "z = 3\n"


def test_a_write_outside_of_its_files_blocks_the_merge(project):
    command = "case $ABREAST_SUBPLAN in src-beta*) echo mine > src/alpha/m1.py;; esac"
    assert project("plan", "run", "--command", command).code == 0
    said = project("plan", "apply", "plan")
    assert said.code == 1
    assert "src/alpha/m1.py" in said.out
    assert (project.folder / "src/alpha/m1.py").read_text() == "x = 1\n"


def test_a_change_of_the_tree_meanwhile_is_a_conflict_and_nothing_is_written(project):
    assert project("plan", "run", "--command", MARK).code == 0
    project.file("src/beta/m2.py", "x = 2\n# by hand\n")
    said = project("plan", "apply", "plan", "--json")
    assert said.code == 1
    assert any("src/beta/m2.py" in line for line in json.loads(said.out)["blocked"])
    assert (project.folder / "src/beta/m3.py").read_text() == "x = 3\n"
    assert project("plan", "apply", "plan", "--dry-run").code == 1


def test_what_cannot_be_is_one_sentence(project):
    assert "not said what to do: give --command, --call or --prompt" in project("plan", "run").err
    assert (
        "--command and --call exclude"
        in project("plan", "run", "--command", "x", "--call", "a:b").err
    )
    assert "--model is for a model" in project("plan", "run", "--command", "x", "-m", "a/b").err
    assert "no module 'nowhere'" in project("plan", "run", "--call", "nowhere:fn").err
    assert (
        "no provider 'nowhere'"
        in project("plan", "run", "--prompt", "x", "-m", "nowhere/model").err
    )
    assert project("plan", "run", "--command", "true", "--width", "-1").code == 2
    project("map", "--", "true", given="a\n")
    assert "map-1 is no plan, but a map" in project("plan", "apply", "map-1").err


def test_a_command_may_follow_two_dashes_and_its_words_stay_words(project):
    words = ("sh", "-c", 'echo "$0" >> "$1"', "it's $HOME; two words", "{files}")
    said = project("plan", "run", "src", "--include", "alpha", "--", *words)
    assert said.code == 0, said
    assert project("plan", "apply", "last", "--no-gate").code == 0
    assert (project.folder / "src/alpha/m0.py").read_text().endswith("it's $HOME; two words\n")
    said = project("plan", "run", "--command", "true", "--", "true")
    assert (said.code, "exclude each other" in said.err) == (2, True)
    assert project("plan", "run", "src", "--").code == 2
