"""Candidates from files, patches and refs: read, never run; a bad one doesn't affect others."""

import pytest

from abreast.jobs.candidates.results import patch_of
from abreast.jobs.candidates.source.changes import FileChange
from abreast.jobs.candidates.source.origins import (
    Project,
    SourceMissing,
    from_directory,
    from_patches,
    from_refs,
    patches_in,
)
from abreast.jobs.candidates.source.target import Target
from tests.worktrees.repositories import ENVIRONMENT, fingerprint, git, make_repository, write

ORIGINAL = "def f(x):\n    return x + 1\n"
OTHER = "def f(x):\n    return 1 + x\n"
TARGET = Target("pkg/mod.py", "f")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])


@pytest.fixture
def project(tmp_path):
    return make_repository(
        tmp_path / "project", {"pkg/mod.py": ORIGINAL, "pkg/other.py": "x = 1\n"}
    )


def here(project, *protected):
    return Project(TARGET, ORIGINAL, project, protected)


def facts(found):
    return [(one.name, one.text, one.fault) for one in found]


def test_the_python_files_of_a_directory_by_name(tmp_path):
    write(
        tmp_path,
        {
            "b.py": OTHER,
            "a.py": "a",
            "notes.md": "",
            ".hidden.py": "",
            "__init__.py": "",
            "c.py": b"\xff",
        },
    )
    found = from_directory(tmp_path)
    assert facts(found[:2]) == [("a", "a", None), ("b", OTHER, None)]
    assert (found[2].fault, found[2].reason) == ("error", "c.py is not in UTF-8")
    assert len(found) == 3


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_no_directory_is_said(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(SourceMissing, match=f"director.*{name}|{name} is no directory"):
        from_directory(tmp_path / name)


def test_patches_are_applied_in_memory_and_touch_nothing_else(project, tmp_path):
    before = fingerprint(project)
    new = "--- /dev/null\n+++ b/pkg/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
    other = patch_of("x = 1\n", "x = 2\n", "pkg/other.py")
    good = patch_of(ORIGINAL, OTHER, TARGET.file)
    rename = "diff --git a/pkg/mod.py b/pkg/moved.py\nsimilarity index 100%\n"
    rename += "rename from pkg/mod.py\nrename to pkg/moved.py\n"
    stale = good.replace("+ 1", "+ 7")
    files = {
        "1-good.patch": good,
        "2-both.patch": good + other,
        "3-new.diff": good + new,
        "4-stale.patch": stale,
        "5-none.patch": "hello\n",
        "6-rename.patch": rename,
        "7-crlf.txt": good,
        "8-only-other.patch": other,
    }
    write(tmp_path / "patches", files)
    found = {one.name: one for one in from_patches(patches_in(tmp_path / "patches"), here(project))}
    assert facts([found["1-good"]]) == [("1-good", OTHER, None)]
    assert found["1-good"].files == ()
    assert found["2-both"].text == OTHER
    assert found["2-both"].files == (FileChange("pkg/other.py", "x = 1\n", "x = 2\n"),)
    assert found["3-new"].files == (FileChange("pkg/new.py", None, "x = 1\n"),)
    assert found["6-rename"].fault == "refused"
    assert {found[name].fault for name in ("4-stale", "5-none")} == {"error"}
    assert found["4-stale"].reason.startswith("it can't be applied: ")
    assert (found["8-only-other"].text, len(found["8-only-other"].files)) == (ORIGINAL, 1)
    assert len(found) == 7
    assert fingerprint(project) == before


NEW = "--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x = 1\n"
LINK = f"diff --git a/{{0}} b/{{0}}\nnew file mode 120000\n{NEW}"


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (NEW.format("conftest.py"), "belongs to the tests"),
        (NEW.format("pkg/test_new.py"), "belongs to the tests"),
        (NEW.format("checks/new.py"), "belongs to the tests"),
        (NEW.format("pytest.ini"), "only"),
        (NEW.format("pyproject.toml"), "only"),
        (NEW.format("setup.cfg"), "only"),
        (NEW.format("sitecustomize.py"), "configuration"),
        (NEW.format("time.py"), "take the place of the module time"),
        (NEW.format("linked/new.py"), "behind one"),
        (LINK.format("pkg/link.py"), "it makes a link of pkg/link.py"),
    ],
)
def test_a_patch_that_touches_what_no_candidate_may_is_refused(project, tmp_path, patch, why):
    (project / "linked").symlink_to("pkg")
    write(tmp_path, {"a.patch": patch_of(ORIGINAL, OTHER, TARGET.file) + patch})
    (found,) = from_patches([tmp_path / "a.patch"], here(project, "checks/"))
    assert (found.fault, why in found.reason) == ("refused", True), found.reason


@pytest.mark.parametrize("path", [".git/hooks/x.py", "../x.py"])
def test_a_patch_of_git_s_own_files_or_of_others_is_never_applied(project, tmp_path, path):
    write(tmp_path, {"a.patch": patch_of(ORIGINAL, OTHER, TARGET.file) + NEW.format(path)})
    (found,) = from_patches([tmp_path / "a.patch"], here(project))
    assert found.fault in {"refused", "error"}
    assert found.files == ()


def test_refs_have_the_file_as_it_is_there(project):
    git(project, "branch", "first")
    write(project, {"pkg/mod.py": OTHER})
    git(project, "commit", "--quiet", "--all", "--message=second")
    git(project, "rm", "--quiet", "pkg/mod.py")
    git(project, "commit", "--quiet", "--message=third")
    found = from_refs(["first", "HEAD~1", "HEAD"], here(project))
    assert facts(found) == [
        ("first", ORIGINAL, None),
        ("HEAD~1", OTHER, None),
        ("HEAD", "", "error"),
    ]
    for bad in ("nobody", "--all", ""):
        with pytest.raises(SourceMissing, match="there is no commit or branch"):
            from_refs([bad], here(project))


def test_a_branch_brings_the_other_code_that_it_has_changed_but_no_tests(project):
    git(project, "checkout", "--quiet", "-b", "faster")
    write(project, {"pkg/mod.py": OTHER, "pkg/other.py": "x = 2\n", "pkg/new.py": "y = 1\n"})
    write(project, {"conftest.py": "", "setup.cfg": "", "pkg/test_x.py": ""})
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message=faster")
    git(project, "checkout", "--quiet", "-")
    write(project, {"unrelated.py": "z = 1\n"})
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message=elsewhere")
    (found,) = from_refs(["faster"], here(project))
    assert (found.text, found.fault) == (OTHER, None)
    assert found.files == (
        FileChange("pkg/new.py", None, "y = 1\n"),
        FileChange("pkg/other.py", "x = 1\n", "x = 2\n"),
    )
    write(project, {"pkg/other.py": "x = 3\n"})  # not even committed
    (found,) = from_refs(["faster"], here(project))
    assert (found.fault, found.reason) == (
        "error",
        "pkg/other.py has changed here too since: merge that first",
    )


def test_a_patch_of_ours_is_one_that_git_applies(project):
    for text in (OTHER, ORIGINAL.rstrip("\n"), ORIGINAL + "\n\nx = 1\n", "def f(x): return x + 1"):
        write(project, {"p.patch": patch_of(ORIGINAL, text, TARGET.file), "pkg/mod.py": ORIGINAL})
        git(project, "apply", "p.patch")
        assert (project / "pkg/mod.py").read_text() == text
