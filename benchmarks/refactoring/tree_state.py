"""All that an undo has to bring back: a tree with its modes, times and links, and its git."""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_OURS = {".git", ".abreast"}
_ASKED = {
    "status": ("status", "--porcelain=v2", "--untracked-files=all"),
    "refs": ("for-each-ref",),
    "head": ("rev-parse", "--symbolic-full-name", "HEAD"),
    "stash": ("stash", "list"),
    "worktrees": ("worktree", "list"),
}


@dataclass(frozen=True, slots=True)
class TreeState:
    """Two states are equal if every byte of the trees is."""

    files: dict[str, str]
    git: dict[str, str]

    @classmethod
    def of(cls, root: Path) -> "TreeState":
        """The state of a directory with a repository."""
        found: dict[str, str] = {}
        for folder, folders, names in os.walk(root):
            if Path(folder) == root:
                folders[:] = [name for name in folders if name not in _OURS]
            for name in (*folders, *names):
                path = Path(folder, name)
                found[str(path.relative_to(root))] = _facts(path)
        git = {word: _ask(root, *words) for word, words in _ASKED.items()}
        for name in ("config", "index", "HEAD"):
            git[f"the file {name}"] = _digest((root / ".git" / name).read_bytes())
        return cls(found, git)

    def differences(self, other: "TreeState") -> list[str]:
        """The paths, and the facts about git, that are not the same."""
        return [
            name
            for mine, others in ((self.files, other.files), (self.git, other.git))
            for name in sorted(mine.keys() | others.keys())
            if mine.get(name) != others.get(name)
        ]


def _facts(path: Path) -> str:
    status = path.lstat()
    if path.is_symlink():
        return f"{status.st_mode:o} -> {path.readlink()}"
    if path.is_dir():
        return f"{status.st_mode:o}"
    return f"{status.st_mode:o} {status.st_mtime_ns} {_digest(path.read_bytes())}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _ask(root: Path, *words: str) -> str:
    # Without locks: `git status` would write the index anew.
    argv = ["git", "--no-optional-locks", *words]
    return subprocess.run(argv, cwd=root, check=True, capture_output=True, text=True).stdout
