"""How a branch is cut into commits is checked, by commits of a real repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts/check_commits.py"
CHANGES = "# Changelog\n\n### Added\n\n{added}- before\n\n### Fixed\n\n{fixed}- before\n"


class Branch:
    """A repository with one commit on `main`, and a branch to commit on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit("Begin", {"CHANGELOG.md": CHANGES.format(added="", fixed=""), "README": "x"})
        self.git("switch", "--quiet", "--create", "mine")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", *who, *words], cwd=self.root, capture_output=True, text=True, check=True
        )
        return done.stdout

    def commit(self, message: str, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def check(self, base: str = "main") -> tuple[int, str, list[str]]:
        command = [sys.executable, str(SCRIPT), "--root", str(self.root), "--base", base]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr.splitlines()

    def problem(self) -> str:
        code, _, problems = self.check()
        assert code == 1
        (problem,) = problems
        return problem


@pytest.fixture
def branch(tmp_path: Path) -> Branch:
    return Branch(tmp_path)


def test_commits_that_are_cut_well_pass(branch):
    fixed, added = (
        CHANGES.format(added="", fixed="- mine\n"),
        CHANGES.format(added="- mine\n", fixed="- mine\n"),
    )
    test = {"tests/test_a.py": "2"}
    branch.commit(
        "Repair a fault\n\nIt was one.",
        {"src/abreast/jobs/plan/a.py": "1", "CHANGELOG.md": fixed, **test},
    )
    branch.commit("Add a thing", {"src/abreast/jobs/sample/a.py": "1", "CHANGELOG.md": added})
    branch.commit(
        "Rename in all jobs",
        {
            "src/abreast/core/a.py": "1",
            "src/abreast/jobs/plan/a.py": "2",
            "src/abreast/jobs/sample/a.py": "2",
        },
    )
    both = {"src/abreast/jobs/plan/a.py": "3", "src/abreast/jobs/sample/a.py": "3"}
    branch.commit("Ask plan and sample for their names\n\nOne change.", both)
    assert branch.check() == (0, "4 commits beyond main: 0 problems\n", [])


@pytest.mark.parametrize("message", ["x" * 73, "A subject\nand no line between"])
def test_a_message_that_is_no_subject_with_a_body_is_refused(branch, message):
    branch.commit(message, {"README": "y"})
    assert "subject" in branch.problem()


def test_code_without_a_test_is_refused_and_a_test_in_another_commit_is_enough(branch):
    branch.commit("Change code", {"src/abreast/core/a.py": "1"})
    assert branch.problem().endswith("the code is changed, and no commit changes a test")
    branch.commit("Test it", {"tests/core/test_a.py": "1"})
    assert branch.check()[0] == 0


@pytest.mark.parametrize("code", [True, False])
def test_a_repair_and_a_feature_in_one_commit_are_refused(branch, code):
    both = CHANGES.format(added="- mine\n", fixed="- mine\n")
    files = {"src/abreast/core/a.py": "1", "tests/test_a.py": "1"} if code else {}
    branch.commit("Repair a fault and add a thing", {"CHANGELOG.md": both, **files})
    if code:
        assert branch.problem().endswith(
            "a repair and something else (Added) in one commit: make it two"
        )
    else:
        assert branch.check()[0] == 0  # what others have changed is told of together


def test_changes_of_two_jobs_in_one_commit_are_refused(branch):
    files = {
        "src/abreast/jobs/plan/a.py": "1",
        "src/abreast/jobs/matrix/a.py": "1",
        "tests/test_a.py": "1",
    }
    branch.commit("Repair the plan", files)
    assert "it changes matrix and plan: make it two commits" in branch.problem()


def test_only_what_the_branch_adds_is_looked_at_and_without_a_base_it_says_so(branch, tmp_path):
    branch.git("switch", "--quiet", "main")
    branch.commit("y" * 90, {"README": "z"})
    branch.git("switch", "--quiet", "mine")
    assert branch.check() == (0, "0 commits beyond main: 0 problems\n", [])
    assert branch.check("origin/main")[:2] == (
        0,
        "commits are not checked: there is no origin/main to compare with\n",
    )
    (tmp_path / ".git").rename(tmp_path / "no-git")
    assert branch.check()[0] == 0
