"""A repository and a cache for each test, and a scripted `git`."""

import os
import shutil
from pathlib import Path

import pytest

from tests.worktrees.repositories import ENVIRONMENT, make_repository


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def repository(tmp_path):
    return make_repository(tmp_path / "repository")


@pytest.fixture
def told_git(tmp_path, monkeypatch):
    """Run a shell script before git, with the arguments in `$*`; if it exits, git does not run."""
    real = shutil.which("git")

    def tell(script):
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        file = place / "git"
        file.write_text(f'#!/bin/sh\n{script}\nexec {real} "$@"\n')
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
        return Path(place)

    return tell
