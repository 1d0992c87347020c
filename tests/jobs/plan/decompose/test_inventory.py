"""The files of real repositories and trees."""

import os
import shutil

import pytest

from abreast.jobs.plan.decompose import inventory as module
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import read_imports
from abreast.jobs.plan.decompose.inventory import FileEntry, FileForm, Inventory, take_inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.worktrees.git import GitFailed
from abreast.worktrees.git import run_git as git
from abreast.worktrees.merge.listing import list_paths
from tests.jobs.plan.repositories import fill, repository
from tests.jobs.plan.repositories import git as run_git

ODD = [
    "späße.py",
    "a b.py",
    "new\nline.py",
    '"quoted".py',
    "-dash.py",
    "tab\t.py",
    os.fsdecode(b"\xff\xfe.py"),
    "a\\b.py",
]


def paths(root, **options):
    return list(take_inventory(root, **options).paths)


def test_what_git_tracks_sorted_from_the_root_of_any_directory(tmp_path):
    root = repository(tmp_path / "r", {"b.py": "", "a/z.py": "", "a/b/c.py": "", "a.py": ""})
    assert paths(root) == ["a.py", "a/b/c.py", "a/z.py", "b.py"]
    assert paths(root / "a") == ["b/c.py", "z.py"]
    assert take_inventory(root).source == "git"


def test_untracked_files_are_said_and_taken_when_asked_and_ignored_ones_never(tmp_path):
    root = repository(tmp_path / "r", {"a.py": "", ".gitignore": "*.log\n"})
    fill(root, {"new.py": "", "x.log": "", ".abreast/store.db": ""})
    assert paths(root) == [".gitignore", "a.py"]
    assert take_inventory(root).notes == ("1 file is not tracked by git, and left out",)
    assert paths(root, untracked=True) == [".gitignore", "a.py", "new.py"]
    assert take_inventory(root, untracked=True).notes == ()


def test_a_file_that_is_tracked_but_gone_is_left_out_and_said(tmp_path):
    root = repository(tmp_path / "r", {"a.py": "", "b.py": "", "d/c.py": ""})
    (root / "b.py").unlink()
    shutil.rmtree(root / "d")
    (root / "d").write_text("a file by now")
    assert paths(root) == ["a.py"]
    assert "2 tracked files are not on disk" in take_inventory(root).notes


def test_an_unsettled_merge_lists_each_file_once(tmp_path):
    root = repository(tmp_path / "r", {"a.py": "1\n"})
    for branch, text in (("x", "2\n"), ("y", "3\n")):
        run_git(root, "checkout", "-q", "-b", branch, "main")
        (root / "a.py").write_text(text)
        run_git(root, "commit", "-q", "-a", "-m", branch)
    with pytest.raises(Exception, match="merge"):
        run_git(root, "merge", "x")
    assert paths(root) == ["a.py"]


def test_odd_names_come_through(tmp_path):
    files = dict.fromkeys(ODD, "x = 1\n")
    assert paths(repository(tmp_path / "r", files)) == sorted(ODD)
    assert paths(fill(tmp_path / "t", files)) == sorted(ODD)
    assert list_paths(tmp_path / "t") == sorted(ODD)


def test_links_are_files_of_their_own_and_never_followed(tmp_path):
    fill(tmp_path / "outside", {"secret.py": "x" * 400})
    files = {
        "a.py": "x",
        "to_file": ("a.py",),
        "to_folder": ("../outside",),
        "broken": ("nowhere",),
        "d/x.py": "y",
    }
    for root in (repository(tmp_path / "r", files), fill(tmp_path / "t", files)):
        found = {file.path: (file.form, file.tokens) for file in take_inventory(root).files}
        assert found == {
            "a.py": (FileForm.FILE, 1),
            "d/x.py": (FileForm.FILE, 1),
            "broken": (FileForm.SYMLINK, 0),
            "to_file": (FileForm.SYMLINK, 0),
            "to_folder": (FileForm.SYMLINK, 0),
        }
    shutil.rmtree(tmp_path / "r/d")
    (tmp_path / "r/d").symlink_to("../outside")
    fill(tmp_path / "outside", {"x.py": "z"})
    assert "d/x.py" not in paths(tmp_path / "r")
    assert "d/x.py" not in list_paths(tmp_path / "r")


def test_tokens_are_a_quarter_of_the_characters_and_binary_and_huge_files_are_marked(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "HUGE", 100)
    root = fill(
        tmp_path / "t",
        {
            "five": "12345",
            "umlauts": "äöüß",
            "latin": b"\xe4" * 8,
            "bin": b"a\0b",
            "huge": "x" * 101,
            "vast": b"\0" * 200,
        },
    )
    found = {file.path: file for file in take_inventory(root).files}
    assert (found["five"].tokens, found["umlauts"].tokens, found["latin"].tokens) == (2, 1, 2)
    assert found["five"].size == 5
    assert found["bin"] == FileEntry("bin", 3, 0, binary=True)
    assert found["huge"] == FileEntry("huge", 101, 26, huge=True)
    assert found["vast"] == FileEntry("vast", 200, 0, binary=True, huge=True)


def test_a_tree_without_git_is_read_whole_apart_from_what_tools_keep(tmp_path):
    root = fill(
        tmp_path / "t",
        {"a.py": "", ".hidden/b": "", "__pycache__/a.pyc": "", ".hg/x": "", "d/__pycache__/x": ""},
    )
    os.mkfifo(root / "pipe")
    found = take_inventory(root)
    assert list(found.paths) == [".hidden/b", "a.py"]
    assert found.source == "tree"
    assert found.notes == ("1 path is neither a file nor a link",)


def test_a_worktree_whose_repository_is_gone_is_a_tree(tmp_path):
    root = fill(tmp_path / "t", {"a.py": "", ".git": f"gitdir: {tmp_path}/nowhere\n"})
    assert paths(root) == list_paths(root) == ["a.py"]


def test_a_directory_that_git_ignores_is_read_as_a_tree(tmp_path):
    root = repository(tmp_path / "r", {".gitignore": "venv\n"})
    fill(root, {"venv/lib/pkg/a.py": "", "venv/lib/pkg/b.py": ""})
    assert paths(root / "venv/lib/pkg") == ["a.py", "b.py"]
    assert take_inventory(root / "venv/lib/pkg").source == "tree"


def test_a_repository_without_a_commit_has_what_is_not_ignored(tmp_path):
    root = fill(tmp_path / "r", {"a.py": "", "x.log": "", ".gitignore": "*.log"})
    run_git(root, "init", "-q")
    assert paths(root) == [".gitignore", "a.py"]


def test_a_submodule_is_one_entry(tmp_path):
    inner = repository(tmp_path / "inner", {"x.py": ""})
    root = repository(tmp_path / "r", {"a.py": ""})
    run_git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    found = {file.path: file.form for file in take_inventory(root).files}
    assert found == {".gitmodules": FileForm.FILE, "a.py": FileForm.FILE, "sub": FileForm.SUBMODULE}
    assert list_paths(root) == [".gitmodules", "a.py"]


def test_without_git_on_the_path_it_is_the_tree(tmp_path, monkeypatch):
    root = repository(tmp_path / "r", {"a.py": ""})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert take_inventory(root).source == "tree"
    with pytest.raises(GitFailed, match="not installed"):
        git("status")


def test_what_git_refuses_is_not_taken_for_an_empty_repository(tmp_path):
    root = repository(tmp_path / "r", {"a.py": ""})
    (root / ".git/index").write_bytes(b"broken")
    with pytest.raises(GitFailed, match="ls-files"):
        take_inventory(root)


def test_a_variable_of_whoever_started_us_leads_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(repository(tmp_path / "other", {"b.py": ""}) / ".git"))
    assert paths(repository(tmp_path / "r", {"a.py": ""})) == ["a.py"]


def test_no_directory_no_inventory(tmp_path):
    with pytest.raises(NotADirectoryError, match="nowhere"):
        take_inventory(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        git("status", cwd=tmp_path / "nowhere")


def test_a_path_that_comes_twice_is_refused():
    with pytest.raises(PlanInvalid, match="twice"):
        Inventory((FileEntry("a"), FileEntry("a")))


def test_a_copy_in_another_place_under_another_name_has_the_same_plan(tmp_path):
    modules = {f"m{number}.py": f"import pkg.m{number + 1}\n" for number in range(30)}
    modules |= {f"sub/n{number}.py": "import pkg.m1\n" for number in range(15)} | {
        "__init__.py": "",
        "sub/__init__.py": "",
    }
    plans = []
    for root in (
        repository(tmp_path / "pkg", modules),
        repository(tmp_path / "deep/er/worktree-7", modules),
    ):
        files = take_inventory(root)
        imports = read_imports(root, files)
        assert imports.edges["m3.py"] == ("m4.py",)
        plans.append(decompose(files, imports))
    assert plans[0] == plans[1]
    assert plans[0].max_depth_reached >= 1
