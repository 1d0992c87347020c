"""Runs git so that it does the same wherever it runs: no prompts, no translations, no variables of who started us."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from abreast.worktrees.git import GitFailed, environment

OURS: Final = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
"""For repositories of our own: nobody's configuration.

In a user's own, theirs says which directories are safe.
"""


def git(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdin: bytes = b"",
    extra: Mapping[str, str] | None = None,
    accept: Sequence[int] = (0,),
) -> subprocess.CompletedProcess[bytes]:
    """Run a git command to its end.

    `GitFailed` if its exit code is none of `accept`, or there is no git.
    """
    command = ["git", *map(str, arguments)]
    pinned = {**environment(), **(extra or {})}
    try:
        done = subprocess.run(
            command, cwd=cwd, input=stdin, capture_output=True, env=pinned, check=False
        )
    except FileNotFoundError as error:
        if cwd is not None and not cwd.is_dir():
            raise
        raise GitFailed("git is not installed, or not on the PATH") from error
    if done.returncode not in accept:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [
            f"exit code {done.returncode}"
        ]
        raise GitFailed(f"git {command[1]}: {said[-1]}")
    return done


def names(listed: bytes) -> list[str]:
    """What a command printed with -z, as paths: any bytes, and back again with `os.fsencode`."""
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]
