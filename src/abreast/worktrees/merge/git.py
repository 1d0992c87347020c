"""Runs git with the same results everywhere: no prompts, translations or inherited variables."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from abreast.worktrees.git import GitFailed, environment

OURS: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
"""For repositories of our own: git reads no configuration of the user or the system.

In a user's repository it does, as that configuration lists the safe directories.
"""


def git(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    extra: Mapping[str, str] | None = None,
    accept: Sequence[int] = (0,),
) -> subprocess.CompletedProcess[bytes]:
    """Run a git command and wait for it.

    Raises `GitFailed` if its exit code is not in `accept`, or if git is not installed.
    """
    command = ["git", *map(str, arguments)]
    variables = {**environment(), **(extra or {})}
    try:
        done = subprocess.run(
            command, cwd=cwd, input=stdin, capture_output=True, env=variables, check=False
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise
        raise GitFailed("git is not installed, or not on the PATH") from error
    if done.returncode not in accept:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [
            f"exit code {done.returncode}"
        ]
        raise GitFailed(f"git {command[1]}: {lines[-1]}")
    return done


def names(listed: bytes) -> list[str]:
    """The paths that a command printed with -z; `os.fsencode` gives back their bytes."""
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]
