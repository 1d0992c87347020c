"""A repository with everything that must not change, and stub agents in it."""

import os
from pathlib import Path

from tests.agents.stubs import stub_toml, write_stub
from tests.cli.shell import Shell
from tests.worktrees.repositories import git


def agent_project(tmp_path, warm, code, **more):
    """A project with a stub agent: a commit, a stash, a tag, a branch, a remote, own edits."""
    folder = tmp_path / "project"
    folder.mkdir()
    made = Shell(folder, warm)
    (folder / ".git").rmdir()
    git(folder, "init", "-q", "-b", "main")
    for name in ("user.name=Mine", "user.email=me@example.com", "remote.origin.url=/no/where"):
        git(folder, "config", *name.split("="))
    made.file(".git/info/exclude", ".abreast\n")
    made.file("shared.txt", "one\ntwo\nthree\n")
    made.file("pkg/words.py", "x = 1\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    head = git(folder, "rev-parse", "HEAD").strip()
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    git(folder, "commit", "-qm", "a submodule")
    (folder / "sub").mkdir()
    made.file("pkg/words.py", "x = 'stashed'\n")
    git(folder, "stash")
    git(folder, "tag", "v1")
    git(folder, "branch", "other")
    made.file("pkg/words.py", "x = 2  # not committed\n")
    made.file("untracked.txt", "mine\n")
    stub = write_stub(tmp_path, code)
    made.file("abreast.toml", stub_toml(stub, **more))
    made.environment |= {"ABREAST_CACHE": str(tmp_path / "cache"), "NOTES": str(tmp_path / "notes")}
    (tmp_path / "notes").mkdir()
    return made


def processes_of(tmp_path):
    """The processes that a stub agent of this project has left."""
    wanted = f"NOTES={tmp_path / 'notes'}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            try:
                words = (place / "environ").read_bytes().split(b"\0")
                name = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if wanted in words and any(one.startswith(b"ABREAST_AGENT=") for one in words):
                found.append((place.name, name))
    return found
