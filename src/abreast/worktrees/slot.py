"""One copy of the working tree, for one who tries something in it at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.executors.commands import Commands
from abreast.worktrees.background import StopRequest, aside
from abreast.worktrees.errors import OutsideRepository, SlotClosed
from abreast.worktrees.git import Git, Repository
from abreast.worktrees.own_git import OwnGit
from abreast.worktrees.staging import (
    Snapshot,
    directories,
    finish_directories,
    make_piece,
    remove_tree,
)

# ns; a file system's clock may tick as slowly: a change right after a look at a file can leave its
# times alone.
_RACY: Final = 50_000_000

KEPT: Final = ".kept"
"""How the names of notes end that say that a slot holds what must not be lost."""


@dataclass(frozen=True, slots=True)
class _Look:
    """How a file was when it was known to be as in the snapshot.

    Any change to it changes its `ctime`.
    """

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    settled: bool
    """Whether it was older than a tick by then; if not, the same look proves nothing."""

    @classmethod
    def at(cls, path: Path) -> _Look:
        """How the file at `path` is now."""
        facts = path.lstat()
        settled = SYSTEM_CLOCK.wall() * 1e9 - facts.st_ctime_ns > _RACY
        return cls(
            facts.st_ino,
            facts.st_size,
            facts.st_mtime_ns,
            facts.st_ctime_ns,
            facts.st_mode,
            settled,
        )

    def holds(self, now: _Look) -> bool:
        """Whether a file that looks like `now` is certainly unchanged since."""
        was = (self.inode, self.size, self.mtime_ns, self.ctime_ns, self.mode)
        return self.settled and was == (now.inode, now.size, now.mtime_ns, now.ctime_ns, now.mode)


@dataclass(frozen=True, slots=True)
class GitFiles:
    """What makes a directory a worktree: its `.git` file, and git's own files about it."""

    link: bytes
    admin: Path
    head: bytes
    index: bytes


class Slot:
    """A place in which a candidate can be tried.

    Nothing written in it shows in another slot or in the main tree.

    await slot.reset()
    slot.write_candidate("pkg/words.py", text)
    ran = await run_confined(["python", "-m", "pytest", "-q"], slot)
    """

    def __init__(
        self, index: int, path: Path, repository: Repository, snapshot: Snapshot, scratch: Path
    ) -> None:
        """Made by `open_worktrees`.

        `scratch` is where its commands get their own HOME and TMPDIR.
        """
        self.index = index
        """Its number in the pool, from 0."""
        self.path = path
        """Its top, which mirrors the top of the repository."""
        self.repository = repository
        self.root = path / repository.root.relative_to(repository.top)
        """What mirrors the directory that the pool was opened for: the top, or a directory beneath it."""
        self.scratch = scratch
        self.commands: Commands | None = None
        """What runs its commands, while the pool is open."""
        self._snapshot = snapshot
        self._looks: dict[str, _Look] = {}
        self._git: GitFiles | None = None
        self._own: OwnGit | None = None

    @property
    def git_dir(self) -> Path | None:
        """A git directory outside of the slot that knows what it began with.

        None if it has none of its own.
        """
        return self._own.place if self._own is not None else None

    def __repr__(self) -> str:
        """Where it is."""
        return f"<Slot {self.index} at {self.path}{'' if self.commands else ', closed'}>"

    def mirror(self, path: str | Path) -> Path:
        """The same file in this slot.

        A relative path is taken from the directory that the pool was opened for.

        OutsideRepository if the path, or where a symbolic link leads it, is not in the repository
        or is git's own.
        """
        top = self.repository.top
        given = self.repository.root / path
        real = (
            Path(os.path.realpath(given.parent)) / given.name
            if given.name != ".."
            else Path(os.path.realpath(given))
        )
        if not real.is_relative_to(top):
            raise OutsideRepository(f"{path} is outside of the repository {top}")
        inside = real.relative_to(top)
        if ".git" in inside.parts:
            raise OutsideRepository(f"{path} is git's own")
        mirrored = self.path / inside
        if not Path(os.path.realpath(mirrored)).is_relative_to(os.path.realpath(self.path)):
            raise OutsideRepository(f"{path} leads out of the slot, by a symbolic link")
        return mirrored

    def write_candidate(self, relative: str | Path, text: str) -> Path:
        """Write a file of this slot, whole; returns where.

        Its directory is made if need be, its mode stays.

        The old file is replaced, never written to: it may be a hard link to another one. A link is
        followed, within the slot. What Python compiled from the old one is removed, as it can't
        tell two texts of one second and size.
        """
        if self.commands is None:
            raise SlotClosed(f"slot {self.index} is closed")
        path = Path(os.path.realpath(self.mirror(relative)))
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        path.parent.mkdir(parents=True, exist_ok=True)
        above = stat.S_IMODE(path.parent.stat().st_mode)
        path.parent.chmod(above | stat.S_IRWXU)
        path.unlink(missing_ok=True)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8", newline="") as file:  # noqa: PTH123
            file.write(text)
        path.chmod(mode)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.parent.chmod(above)
        return path

    async def stage(self, relative: str | Path, text: str) -> Path:
        """Write a file of this slot as `write_candidate` does, beside the loop."""
        return await aside(lambda _: self.write_candidate(relative, text))

    def keep(self, note: str) -> None:
        """What is in it must not be lost: if its owner dies, no pool removes it before it is let go."""
        kept = kept_note(self.path)
        kept.with_suffix(".part").write_text(note, "utf-8")
        kept.with_suffix(".part").replace(kept)

    def let_go(self) -> None:
        """What is in it is safe elsewhere, or nobody's."""
        kept_note(self.path).unlink(missing_ok=True)

    async def reset(self) -> None:
        """Go back to the snapshot exactly: files, modes, links.

        What else is there is removed. No-op once closed.
        """
        if self.commands is not None:
            await aside(self.restore)

    async def begin_here(self) -> None:
        """What is in it now is what it begins with: for its own git, if it has one, that is the state of HEAD."""
        own = self._own
        if own is not None and self.commands is not None:
            await aside(lambda stop: own.commit_files(self.path, Git(self.path, stop)))

    def own(self, own: OwnGit) -> None:
        """From now on, `restore` gives it a git directory of its own."""
        self._own = own

    def adopt(self, git: Git) -> None:
        """After `git worktree add`: give git the staged state of the main tree, and keep its files for `restore`."""
        link = self.path / ".git"
        content = link.read_bytes()
        admin = Path(os.fsdecode(content.removeprefix(b"gitdir: ").strip()))
        if self._snapshot.index:
            git("update-index", "-z", "--index-info", stdin=self._snapshot.index)
        else:
            git("read-tree", "--empty")
        self._git = GitFiles(
            content, admin, (admin / "HEAD").read_bytes(), (admin / "index").read_bytes()
        )

    def restore(self, stop: StopRequest) -> None:
        """What `reset` does, blocking."""
        if self.path.is_symlink() or not self.path.is_dir():
            remove_tree(self.path)
            self.path.mkdir(mode=0o700)
        self._clear(stop)
        for name in sorted(self._snapshot.pieces):
            stop.check()
            if name not in self._looks and name:
                make_piece(self._snapshot, name, self.path / name)
                self._looks[name] = _Look.at(self.path / name)
        finish_directories(self._snapshot, self.path, directories(self._snapshot))
        if self._own is not None:
            self._own.install(self.path, Git(self.repository.top, stop))
        self._restore_git()

    def _clear(self, stop: StopRequest) -> None:
        """Remove what isn't as in the snapshot; `_looks` has what was left."""
        left: dict[str, _Look] = {}
        waiting = [""]
        while waiting:
            above = waiting.pop()
            place = self.path / above
            place.chmod(0o700)
            for entry in list(os.scandir(place)):
                stop.check()
                name = f"{above}/{entry.name}" if above else entry.name
                if name == ".git" and (self._git is not None or self._own is not None):
                    continue
                look = _Look.at(Path(entry.path))
                if self._is_as_it_was(name, look):
                    left[name] = look
                    if stat.S_ISDIR(look.mode):
                        waiting.append(name)
                else:
                    remove_tree(Path(entry.path))
        self._looks = left

    def _is_as_it_was(self, name: str, look: _Look) -> bool:
        piece = self._snapshot.pieces.get(name)
        if piece is None or piece.kind != stat.S_IFMT(look.mode):
            return False
        if piece.kind == stat.S_IFDIR:
            return True
        if piece.kind == stat.S_IFLNK:
            return os.readlink(self.path / name) == piece.target  # noqa: PTH115 - a Path would forget "./"
        before = self._looks.get(name)
        if before is not None and before.holds(look):
            return True
        same = (look.mtime_ns, stat.S_IMODE(look.mode)) == (piece.mtime_ns, piece.mode)
        return same and _equal(self.path / name, self._snapshot.place / name)

    def _restore_git(self) -> None:
        if self._git is None:
            return
        link = self.path / ".git"
        if link.is_symlink() or not link.is_file() or link.read_bytes() != self._git.link:
            remove_tree(link)
            link.write_bytes(self._git.link)
        for name, content in (("HEAD", self._git.head), ("index", self._git.index)):
            file = self._git.admin / name
            if not file.is_file() or file.read_bytes() != content:
                file.write_bytes(content)
        for name in ("index.lock", "HEAD.lock"):  # of a git that was killed
            (self._git.admin / name).unlink(missing_ok=True)


def kept_note(slot: Path) -> Path:
    """Where it is noted that a slot holds what must not be lost: beside it, where nothing in it can change it."""
    return slot.with_name(f"{slot.name}{KEPT}")


def _equal(one: Path, other: Path, chunk: int = 1 << 20) -> bool:
    """Whether two files have the same bytes and only one name: one with a second name may change through it."""
    facts = one.lstat()
    if facts.st_nlink != 1 or facts.st_size != other.lstat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        read: Callable[[], tuple[bytes, bytes]] = lambda: (first.read(chunk), second.read(chunk))  # noqa: E731
        return all(left == right for left, right in iter(read, (b"", b"")))
