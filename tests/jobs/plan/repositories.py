"""Real git repositories, copies of them for subplans, and the state of a tree on disk."""

import os
import shutil
import subprocess
from pathlib import Path

from abreast.worktrees.merge.merge import Change, merge
from abreast.worktrees.merge.snapshots import Snapshots

QUIET = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{
        f"GIT_{who}_{what}": "t@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    },
}


def git(root, *arguments):
    return subprocess.run(
        ["git", *arguments], cwd=root, env=QUIET, capture_output=True, check=True
    ).stdout


def fill(root, files):
    """Write files: text, bytes, or a link as a tuple of where it leads."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, tuple):
            place.symlink_to(content[0])
        else:
            place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def repository(root, files):
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "-q", "-b", "main")
    fill(root, files)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "start")
    return root


def on_disk(root):
    """Everything in a tree except .git: modes, contents, inodes and times."""
    found = {}
    for place, folders, files in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        for name in [*files, *folders]:
            path = Path(place, name)
            facts = path.lstat()
            which = (facts.st_ino, facts.st_mtime_ns) if name in files else ()
            content = (
                path.readlink()
                if path.is_symlink()
                else path.read_bytes()
                if name in files
                else None
            )
            found[str(path.relative_to(root))] = (oct(facts.st_mode), content, which)
    return found


class Bench:
    """A repository, its snapshots, and subplans that work on copies of it."""

    def __init__(self, place, files):
        self.place = place
        self.root = repository(place / "source", files)
        self.snapshots = Snapshots(place / "snapshots.git")
        self.base = self.snapshots.take(self.root)
        self.changes = []

    def copy(self, place):
        """A copy in another place, in a tenth of the time."""
        shutil.copytree(self.place, place, symlinks=True, dirs_exist_ok=True)
        twin = object.__new__(Bench)
        twin.place, twin.root, twin.base, twin.changes = place, place / "source", self.base, []
        twin.snapshots = Snapshots(place / "snapshots.git")
        return twin

    def subplan(self, leaf, edit, base=None):
        """Run an edit in a copy of the source as it was at first, and is still, or of a tree."""
        work = self.place / f"work-{len(self.changes)}"
        if base is None:
            shutil.copytree(self.root, work, symlinks=True)
            base = self.base
        else:
            self.check_out(base, work)
        edit(work)
        change = Change(leaf, base, self.snapshots.take(work))
        self.changes.append(change)
        return change

    def check_out(self, tree, work):
        work.mkdir()
        for path, entry in self.snapshots.entries(tree).items():
            content = self.snapshots.read(entry.blob)
            fill(work, {path: (os.fsdecode(content),) if entry.link else content})
            if entry.mode == "100755":
                (work / path).chmod(0o755)

    def merge(self, **options):
        return merge(self.snapshots, self.snapshots.take(self.root), self.changes, **options)

    def text(self, merged, path):
        entry = self.snapshots.entries(merged.tree).get(path)
        return None if entry is None else self.snapshots.read(entry.blob).decode()
