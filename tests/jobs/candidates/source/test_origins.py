"""Candidates from files, patches and refs: read, never run; a bad one doesn't affect others."""

import pytest

from abreast.jobs.candidates.results import patch_of
from abreast.jobs.candidates.source.origins import (
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
    }
    write(tmp_path / "patches", files)
    found = {
        one.name: one for one in from_patches(patches_in(tmp_path / "patches"), TARGET, ORIGINAL)
    }
    assert facts([found["1-good"]]) == [("1-good", OTHER, None)]
    assert found["2-both"].reason == "it touches pkg/other.py, and only pkg/mod.py may change"
    assert "touches pkg/new.py" in found["3-new"].reason
    assert {found[name].fault for name in ("2-both", "3-new", "6-rename")} == {"refused"}
    assert {found[name].fault for name in ("4-stale", "5-none")} == {"error"}
    assert found["4-stale"].reason.startswith("it can't be applied: ")
    assert len(found) == 6
    assert fingerprint(project) == before


def test_refs_have_the_file_as_it_is_there(project):
    git(project, "branch", "first")
    write(project, {"pkg/mod.py": OTHER})
    git(project, "commit", "--quiet", "--all", "--message=second")
    git(project, "rm", "--quiet", "pkg/mod.py")
    git(project, "commit", "--quiet", "--message=third")
    found = from_refs(["first", "HEAD~1", "HEAD"], TARGET, project)
    assert facts(found) == [
        ("first", ORIGINAL, None),
        ("HEAD~1", OTHER, None),
        ("HEAD", "", "error"),
    ]
    for bad in ("nobody", "--all", ""):
        with pytest.raises(SourceMissing, match="there is no commit or branch"):
            from_refs([bad], TARGET, project)


def test_a_patch_of_ours_is_one_that_git_applies(project):
    for text in (OTHER, ORIGINAL.rstrip("\n"), ORIGINAL + "\n\nx = 1\n", "def f(x): return x + 1"):
        write(project, {"p.patch": patch_of(ORIGINAL, text, TARGET.file), "pkg/mod.py": ORIGINAL})
        git(project, "apply", "p.patch")
        assert (project / "pkg/mod.py").read_text() == text
