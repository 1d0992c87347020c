"""Git commands of subplans work in their worktree, and none of them changes the repository."""

import pytest

from tests.cli.shell import Shell
from tests.jobs.plan.repositories import git
from tests.worktrees.repositories import look

PARTS = ("alpha", "beta")


@pytest.fixture
def project(tmp_path, warm):
    folder = tmp_path / "project"
    folder.mkdir()
    made = Shell(folder, warm)
    (folder / ".git").rmdir()
    git(folder, "init", "-q", "-b", "main")
    for name in (
        "user.name=Mine",
        "user.email=mine@example.com",
        "remote.origin.url=/nowhere/at/all",
    ):
        git(folder, "config", *name.split("="))
    for part in PARTS:
        for one in range(6):
            made.file(f"{part}/m{one}.py", f"x = {one}\n")
    made.file(".git/info/exclude", "*.log\n.abreast\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    made.file("alpha/m0.py", "x = 'stashed'\n")
    git(folder, "stash")
    hook = folder / ".git/hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    git(folder, "tag", "v1")
    git(folder, "branch", "other")
    made.environment |= {"ABREAST_CACHE": str(tmp_path / "cache"), "OUT": str(tmp_path)}
    return made


def ran(project, command, *more, code=0):
    """Run a command in every part; the repository is the same bytes afterwards."""
    before = look(project.folder / ".git")
    said = project("plan", "run", "--command", f"set -e\n{command}", "--json", *more)
    assert said.code == code, said
    assert look(project.folder / ".git") == before
    assert not (project.folder.parent / "hooked").exists()
    return said


WRITES = 'echo "y = 1" > "${ABREAST_SCOPE}m1.py"; echo new > "${ABREAST_SCOPE}new.txt"\n'


TOLD = [
    "git stash -u",
    "git stash -u; git stash pop; git stash list; git stash -u; git stash drop",
    "git config user.name y; git config --unset user.email; git config core.worktree /",
    "git branch x; git branch -D x; git tag t; git tag -d v1",
    "git checkout -q -b mine; git branch -D main",
    "git update-ref -d HEAD",
    "git reflog expire --expire=now --all; git gc -q --prune=now",
    'git worktree add -q "../another-$$"; git worktree prune',
    "rm -rf .git",
    "rm -rf .git; if git status; then exit 1; fi; git init -q; git add -A",
    (
        "git push origin HEAD && exit 1; "
        "git remote add origin . && git push -q origin HEAD:refs/heads/pushed"
    ),
    "git reset -q --hard; git clean -qfdx",
    "echo '*' > .git/info/exclude; git rm -rq --cached .",
]


def test_whatever_git_is_told_in_a_part_the_repository_stays_and_later_edits_arrive(project):
    """Each part tells it something else."""
    parts = [f"part{number}" for number in range(len(TOLD))]
    for part in parts:
        for one in range(6):
            project.file(f"{part}/m{one}.py", f"x = {one}\n")
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "second")
    (project.folder.parent / "hooked").unlink()
    cases = [f"{part}/)\n{told}\n;;\n" for part, told in zip(parts, TOLD, strict=True)]
    said = ran(project, f"{WRITES}case $ABREAST_SCOPE in\n{''.join(cases)}esac\n{WRITES}")
    assert len(_values(said)) == len(parts) + len(PARTS)
    said = project("plan", "apply", "plan")
    assert said.code == 0, said
    for part in parts:
        assert (project.folder / part / "m1.py").read_text() == "y = 1\n", part
        assert (project.folder / part / "new.txt").read_text() == "new\n", part


def test_what_was_committed_in_a_part_is_its_result_and_what_was_stashed_is_not(project):
    ran(
        project,
        f"""{WRITES}
case $ABREAST_SCOPE in
    alpha/) git commit -qam one; git add -A; git commit -qm two; echo z > alpha/a.log; \
git add -f alpha/a.log;;
    beta/) git stash -qu;;
esac""",
    )
    said = project("plan", "apply", "plan")
    assert said.code == 0, said
    assert (project.folder / "alpha/m1.py").read_text() == "y = 1\n"
    assert (project.folder / "alpha/new.txt").read_text() == "new\n"
    assert (project.folder / "alpha/a.log").read_text() == "z\n"
    assert (project.folder / "beta/m1.py").read_text() == "x = 1\n"
    assert not (project.folder / "beta/new.txt").exists()
    assert git(project.folder, "log", "--format=%s").decode().split() == ["first"]


def test_in_a_part_git_knows_the_history_the_branch_the_tags_and_the_user(project):
    ran(
        project,
        """
[ -z "$(git status --porcelain)" ]
[ "$(git branch --show-current)" = main ]
[ "$(git log --format=%s)" = first ]
[ "$(git describe --tags)" = v1 ]
[ -z "$(git stash list)" ]
[ -z "$(git remote)" ]
[ -d .git ]
echo 'x = 2' >> "${ABREAST_SCOPE}m1.py"
[ "$(git diff --name-only)" = "${ABREAST_SCOPE}m1.py" ]
git commit -qam mine
[ "$(git log -1 --format=%an)" = Mine ]
""",
    )


def test_going_back_in_a_part_never_goes_behind_the_edits_of_the_user(project):
    project.file("alpha/m2.py", "x = 'not committed'\n")
    project.file("alpha/staged.py", "x = 'staged'\n")
    git(project.folder, "add", "alpha/staged.py")
    project.file("beta/untracked.py", "x = 'untracked'\n")
    (project.folder / "beta/m3.py").unlink()
    said = ran(
        project,
        '[ -z "$(git status --porcelain)" ]; git log --format=%s; git stash -u; git reset --hard',
    )
    assert {one["stdout"].splitlines()[1] for one in _values(said)} == {"first"}
    assert [one["changed"] for one in _values(said)] == [[], []]


def _values(said):
    return [one["value"] for one in said.rows[0]["subplans"]]


def test_a_part_that_needs_another_goes_back_to_what_that_one_did(project):
    project.file("alpha/__init__.py", "import beta\n")
    project.file("beta/__init__.py", "")
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "second")
    (project.folder.parent / "hooked").unlink()
    command = """
case $ABREAST_SCOPE in
    alpha/) git stash -u; git reset -q --hard; cat beta/m1.py; \
[ "$(git log --format=%s | tail -n 1)" = first ];;
    beta/) echo 'x = "by beta"' > beta/m1.py;;
esac"""
    said = ran(project, command, "--order", "dependencies")
    assert ['x = "by beta"' in one["stdout"] for one in _values(said)] == [True, False]
    assert [one["changed"] for one in _values(said)] == [[], ["beta/m1.py"]]


def test_variables_of_a_hook_that_started_it_lead_no_part_to_the_repository(project):
    project.environment |= {
        "GIT_DIR": str(project.folder / ".git"),
        "GIT_INDEX_FILE": str(project.folder / ".git/index"),
    }
    ran(project, 'git stash -u; git branch x; [ -z "$GIT_DIR$GIT_INDEX_FILE" ]')


@pytest.mark.parametrize("kind", ["linked", "shallow", "borrowing", "detached", "unborn", "sha256"])
def test_any_kind_of_repository_can_be_the_source(project, tmp_path, kind):
    folder, made = tmp_path / "made", "first"
    if kind == "linked":
        git(project.folder, "worktree", "add", "-q", "-b", "linked", folder)
    elif kind == "shallow":
        project.file("alpha/m0.py", "x = 7\n")
        git(project.folder, "commit", "-qam", "second")
        git(tmp_path, "clone", "-q", "--depth", "1", f"file://{project.folder}", folder)
        made = "second"
    elif kind == "borrowing":
        git(tmp_path, "clone", "-q", "--shared", project.folder, tmp_path / "between")
        git(tmp_path, "clone", "-q", "--shared", tmp_path / "between", folder)
    elif kind == "detached":
        git(tmp_path, "clone", "-q", project.folder, folder)
        git(folder, "checkout", "-q", "--detach")
    else:
        folder.mkdir()
        git(folder, "init", "-q", f"--object-format={'sha256' if kind == 'sha256' else 'sha1'}")
        for part in PARTS:
            for one in range(6):
                (folder / part).mkdir(exist_ok=True)
                (folder / part / f"m{one}.py").write_text(f"x = {one}\n")
        git(folder, "add", "-A")
        made = "The working tree as it was when the work began"
        if kind == "sha256":
            git(folder, "commit", "-qm", "first")
            made = "first"
    for name in ("name", "email"):
        git(folder, "config", f"user.{name}", "mine@example.com")
    (tmp_path / "hooked").unlink(missing_ok=True)
    (folder / ".abreast").mkdir()
    place = folder / git(folder, "rev-parse", "--git-common-dir").decode().strip()
    before = look(place)
    command = (
        f'set -e\n[ "$(git log --format=%s)" = "{made}" ]; git fsck; '
        f"{WRITES} git commit -qam x; git stash -u; {WRITES}"
    )
    said = project("plan", "run", str(folder), "--command", command, "--json")
    assert said.code == 0, said
    assert look(place) == before
    assert all(len(one["changed"]) == 2 for one in _values(said))


def test_a_directory_that_the_repository_ignores_is_divided_as_a_plain_one(project):
    project.file(".git/info/exclude", ".abreast\n/made\n")
    for name in ("one", "two"):
        project.file(f"made/{name}.py", "x = 1\n")
    before = look(project.folder / ".git")
    command = 'for file in {files}; do echo "y = 2" >> "$file"; done'
    said = project("plan", "run", "made", "--min-files", 1, "--command", command, "--json")
    assert said.code == 0, said
    assert [one["state"] for one in said.rows[0]["subplans"]] == ["done", "done"]
    assert project("plan", "apply", "last").code == 0
    for name in ("one", "two"):
        assert (project.folder / "made" / f"{name}.py").read_text() == "x = 1\ny = 2\n"
    assert look(project.folder / ".git") == before
    assert list((project.folder.parent / "cache").glob("worktrees/*/*/*")) == []


def test_a_part_of_a_repository_with_ignored_files_beside_others_stays_a_part_of_it(project):
    project.file("alpha/m0.log", "ignored\n")
    command = "set -e; git rev-parse HEAD; for file in {files}; do echo 'y = 2' >> \"$file\"; done"
    said = project("plan", "run", "alpha", "--command", command, "--json")
    assert said.code == 0, said
    assert project("plan", "apply", "last").code == 0
    assert (project.folder / "alpha/m0.log").read_text() == "ignored\n"
    assert (project.folder / "alpha/m0.py").read_text() == "x = 0\ny = 2\n"
