"""A branch of the winner: one commit with its evidence, and nothing else moves."""

from dataclasses import replace

import pytest

from abreast.jobs.candidates.branch import (
    CandidateBranch,
    RunEvidence,
    WinnerCommit,
    commit_message,
)
from abreast.jobs.candidates.results import Checked, Timed, Tried
from abreast.jobs.candidates.source.changes import FileChange
from abreast.jobs.candidates.source.target import Target
from tests.worktrees.repositories import ENVIRONMENT, git, look, make_repository, write

BEFORE, AFTER = "def f():\n    return 1\n", "def f():\n    return 2 - 1\n"
OWN = FileChange("pkg/mod.py", BEFORE, AFTER)
WINNER = Tried(
    *("fast", "file", None, "faster", "", AFTER),
    checked=Checked("same", tests=4, passed=3, invocations=9, generated=197),
    timed=Timed("faster", ratio=2.3, low=2.1, high=2.5, noise_floor=0.012, blocks=8),
)
EVIDENCE = RunEvidence("optimize-1", 0.012, "network, memory; missing here: files (no)")
TARGET = Target("pkg/mod.py", "f")


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    for name, value in ENVIRONMENT.items():
        if name.startswith("GIT_"):
            monkeypatch.setenv(name, value)


@pytest.fixture
def project(tmp_path):
    place = make_repository(tmp_path / "project", {"pkg/mod.py": BEFORE, "gone.py": "x = 1\n"})
    (place / "pkg/mod.py").chmod(0o755)
    git(place, "commit", "--quiet", "--all", "--message=second")
    write(place, {"staged.py": "s = 1\n", "untracked.py": "u = 1\n"})
    git(place, "add", "staged.py")
    return place


def around(project):
    """All that must stay: the files, the index, HEAD; objects and the branch itself are added."""
    files = look(project, without=("objects",))
    own = (".git/refs/heads/faster", ".git/logs/refs/heads/faster")
    kept = {name: one for name, one in files.items() if not name.startswith(own)}
    return kept, git(project, "status", "--porcelain")


def commit(*changes):
    return WinnerCommit(commit_message(TARGET, WINNER, EVIDENCE), changes)


def test_the_commit_is_on_head_with_the_evidence_and_nothing_else_moves(project):
    before, head = around(project), git(project, "rev-parse", "HEAD").strip()
    branch = CandidateBranch(project, "faster/f")
    branch.check("pkg/mod.py")
    new, gone = FileChange("pkg/new.py", None, "y = 1\n"), FileChange("gone.py", "x = 1\n", None)
    made = branch.make([commit(OWN, new, gone)])
    assert around(project) == before
    assert (made.name, made.base, len(made.commits)) == ("faster/f", head, 1)
    assert git(project, "log", "--format=%H %P", f"{head}..faster/f").split() == [
        made.commits[0],
        head,
    ]
    assert git(project, "show", "faster/f:pkg/mod.py") == AFTER
    changed = git(project, "diff", "--raw", "--abbrev=1", head, "faster/f").splitlines()
    assert [line.split()[:2] + line.split()[4:] for line in changed] == [
        [":100644", "000000", "D", "gone.py"],
        [":100755", "100755", "M", "pkg/mod.py"],
        [":000000", "100644", "A", "pkg/new.py"],
    ]
    message = git(project, "log", "-1", "--format=%B", "faster/f")
    assert message.startswith("Make f 2.30x as fast\n\n")
    for fact in (
        *("pkg/mod.py::f", "2.30x [2.10, 2.50] in 8 blocks", "Noise floor: 1.2%", "3 of 4 pass"),
        *("Calls compared: 9", "inputs compared: 197", "network, memory", "optimize-1", "fast"),
    ):
        assert fact in message
    assert made.plain() == {"name": "faster/f", "base": head, "commits": [made.commits[0]]}


def test_each_function_has_a_commit_on_the_one_before(project):
    more = AFTER + "\n\ndef g():\n    return 3\n"
    second = replace(OWN, after=more)
    made = CandidateBranch(project, "all").make([commit(OWN), commit(second)])
    assert git(project, "show", f"{made.commits[0]}:pkg/mod.py") == AFTER
    assert git(project, "show", "all:pkg/mod.py") == more
    assert git(project, "rev-list", "--count", f"{made.base}..all").strip() == "2"
    # A resumed run that has made it already finds it, with its commits.
    again = CandidateBranch(project, "all")
    again.check("pkg/mod.py", resumed=True)
    assert again.make([commit(OWN), commit(second)]) == made


def test_what_is_there_already_stays_and_is_said(project):
    git(project, "branch", "taken")
    branch, refs = CandidateBranch(project, "taken"), git(project, "for-each-ref")
    with pytest.raises(ValueError, match="there is a branch taken already"):
        branch.check("pkg/mod.py")
    with pytest.raises(ValueError, match="there is a branch taken already"):
        branch.make([commit(OWN)])
    assert git(project, "for-each-ref") == refs


@pytest.mark.parametrize("name", ["a b", "-x", "a..b", "@{-1}", ""])
def test_a_name_that_git_does_not_take_is_said(project, name):
    with pytest.raises(ValueError, match="is no name of a branch"):
        CandidateBranch(project, name).check("pkg/mod.py")


def test_a_file_that_differs_from_head_is_refused_before_and_at_the_end(project):
    branch = CandidateBranch(project, "new")
    with pytest.raises(ValueError, match=r"untracked\.py differs from HEAD"):
        branch.check("untracked.py")
    write(project, {"pkg/mod.py": BEFORE + "# later\n"})
    with pytest.raises(ValueError, match=r"mod\.py differs from HEAD, where new starts: commit it"):
        branch.check("pkg/mod.py")
    other = FileChange("gone.py", "x = 7\n", "x = 8\n")
    with pytest.raises(ValueError, match=r"gone\.py differs from HEAD"):
        branch.make([commit(OWN, other)])
    assert "new" not in git(project, "branch", "--list", "new")


def test_line_ends_and_filters_of_the_repository_are_kept(tmp_path):
    files = {".gitattributes": "*.py text eol=crlf\n", "pkg/mod.py": BEFORE.replace("\n", "\r\n")}
    project = make_repository(tmp_path / "project", files)
    crlf = FileChange("pkg/mod.py", *(text.replace("\n", "\r\n") for text in (BEFORE, AFTER)))
    branch = CandidateBranch(project, "new")
    branch.check("pkg/mod.py")
    branch.make([commit(crlf)])
    assert git(project, "cat-file", "blob", "new:pkg/mod.py") == AFTER


def test_without_a_commit_there_is_nothing_to_start_from(tmp_path):
    git(tmp_path, "init", "--quiet")
    with pytest.raises(ValueError, match="has no commit that new could start from"):
        CandidateBranch(tmp_path, "new").check(None)


def test_a_long_name_leaves_a_subject_of_at_most_72_characters():
    target = Target("m.py", f"{'Class' * 20}.{'method' * 20}")
    assert len(commit_message(target, WINNER, EVIDENCE).splitlines()[0]) <= 72
