"""A slot: one copy of the working tree, used by one item at a time."""

import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from abreast.core.clock import SYSTEM_CLOCK
from abreast.executors.commands import CommandRunner
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.errors import OutsideRepository, SlotClosed
from abreast.worktrees.git import Git, Repository
from abreast.worktrees.own_git import OwnGit
from abreast.worktrees.staging import (
    FileState,
    Snapshot,
    finish_directories,
    make_piece,
    remove_tree,
)

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class GitFiles:
    """The files that make a directory a worktree: its `.git` file, and git's files about it."""

    link: bytes
    admin: Path
    head: bytes
    index: bytes


class NodeCalls(Protocol):
    """Has work done in copies of slots: `abreast.worktrees.nodes.driver.NodeWork`."""

    async def call(
        self, slot: "Slot", work: Callable[["Slot"], Awaitable[R]], *, wants_changes: bool = False
    ) -> R:
        """Call `work` on a node, with a copy of `slot` as it is now."""


class Slot:
    """A copy of the working tree, isolated from other slots and from the main tree.

    Nothing written in it shows in another slot or in the main tree.

        await slot.reset()
        slot.write_candidate("pkg/words.py", text)
        ran = await run_confined(["python", "-m", "pytest", "-q"], slot)
    """

    def __init__(
        self,
        index: int,
        path: Path,
        repository: Repository,
        snapshot: Snapshot,
        scratch: Path,
        *,
        own_git: OwnGit | None = None,
    ) -> None:
        """Made by `open_worktrees`.

        `scratch` is where its commands get their own HOME and TMPDIR. With `own_git`, `restore`
        gives it a git directory of its own.
        """
        self.index = index  # its number in the pool, from 0
        self.path = path  # its top directory, which corresponds to the top of the repository
        self.repository = repository
        # Its copy of the directory that the pool was opened for: the top, or one beneath it.
        self.root = path / repository.root.relative_to(repository.top)
        self.scratch = scratch
        # Runs its commands while the pool is open; None once it is closed.
        self.commands: CommandRunner | None = None
        # Does work in copies of it on other machines, if its pool was opened for that.
        self.nodes: NodeCalls | None = None
        # What `stage` has done to files since the last reset, by path from its top: "added",
        # "changed" or "removed".
        self.staged: Mapping[str, str] = {}
        self._snapshot = snapshot
        self._states: dict[str, FileState] = {}
        self._git: GitFiles | None = None
        self._own_git = own_git

    @property
    def git_dir(self) -> Path | None:
        """A git directory outside of the slot that records its initial state.

        None if the slot has no git directory of its own.
        """
        return self._own_git.place if self._own_git is not None else None

    def object_folders(self) -> list[Path]:
        """Where git finds objects, besides its directory; empty if the slot has none of its own."""
        return [] if self._own_git is None else self._own_git.object_folders()

    def __repr__(self) -> str:
        return f"<Slot {self.index} at {self.path}{'' if self.commands else ', closed'}>"

    def __reduce__(self) -> tuple[type["Slot"], tuple[int, Path, Repository, Snapshot, Path]]:
        # What is held travels with an item to other processes; there it is closed.
        nothing = Snapshot(self.path, {})
        return Slot, (self.index, self.path, self.repository, nothing, self.scratch)

    def mirror(self, path: str | Path) -> Path:
        """The path in this slot that corresponds to a path of the repository.

        A relative path starts at the directory that the pool was opened for. Raises
        OutsideRepository if the path, or the target of a symbolic link in it, is not in the
        repository or belongs to git.
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
        """Write a whole file of this slot; returns its path.

        Its directory is made if it does not exist, and its mode is kept. The old file is replaced,
        never written to: it may be a hard link to another one. A symbolic link is followed, within
        the slot. Bytecode compiled from the old file is removed: Python can't distinguish two
        sources with the same second and size.
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
        with open(os.open(path, flags, 0o600), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        path.chmod(mode)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.parent.chmod(above)
        return path

    def remove_file(self, relative: str | Path) -> Path:
        """Remove a file of this slot and what was compiled from it; returns its path."""
        if self.commands is None:
            raise SlotClosed(f"slot {self.index} is closed")
        path = self.mirror(relative)
        above = stat.S_IMODE(path.parent.stat().st_mode)
        path.parent.chmod(above | stat.S_IRWXU)
        path.unlink(missing_ok=True)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.parent.chmod(above)
        return path

    async def stage(self, relative: str | Path, text: str | None) -> Path:
        """Write a file of this slot as `write_candidate` does, in a thread.

        Without text, remove it. `staged` has its name until the next reset.
        """

        def work(_: StopRequest) -> Path:
            if text is None:
                path = self.remove_file(relative)
            else:
                path = self.write_candidate(relative, text)
            real = Path(os.path.realpath(path.parent), path.name)
            name = real.relative_to(os.path.realpath(self.path)).as_posix()
            done = "changed" if name in self._snapshot.pieces else "added"
            self.staged = {**self.staged, name: "removed" if text is None else done}
            return path

        return await run_in_thread(work)

    def keep(self, note: str) -> None:
        """Mark its content as not to be lost.

        If its owner dies, no pool removes the slot before `let_go` is called.
        """
        kept = kept_note(self.path)
        kept.with_suffix(".part").write_text(note, "utf-8")
        kept.with_suffix(".part").replace(kept)

    def let_go(self) -> None:
        """Remove the mark of `keep`: the content is saved elsewhere, or no longer needed."""
        kept_note(self.path).unlink(missing_ok=True)

    async def reset(self) -> None:
        """Restore the snapshot exactly: files, modes, links; everything else is removed.

        Does nothing once the pool is closed.
        """
        if self.commands is not None:
            await run_in_thread(self.restore)

    async def begin_here(self) -> None:
        """Make the current content the initial state: the slot's own git, if any, commits it."""
        own_git = self._own_git
        if own_git is not None and self.commands is not None:
            await run_in_thread(lambda stop: own_git.commit_files(self.path, Git(self.path, stop)))

    def record_git_files(self, git: Git) -> None:
        """Give git the staged state of the main tree, and keep git's files for `restore`.

        Called after `git worktree add`.
        """
        content = (self.path / ".git").read_bytes()
        admin = Path(os.fsdecode(content.removeprefix(b"gitdir: ").strip()))
        if self._snapshot.index:
            git("update-index", "-z", "--index-info", stdin=self._snapshot.index)
        else:
            git("read-tree", "--empty")
        self._git = GitFiles(
            content, admin, (admin / "HEAD").read_bytes(), (admin / "index").read_bytes()
        )

    def restore(self, stop: StopRequest) -> None:
        """The same as `reset`, blocking."""
        self.staged = {}
        if self.path.is_symlink() or not self.path.is_dir():
            remove_tree(self.path)
            self.path.mkdir(mode=0o700)
        known = self._clear(stop)
        top = str(self.path)
        for name in sorted(self._snapshot.pieces.keys() - known.keys() - {""}):
            stop.check()
            known[name] = make_piece(self._snapshot, name, f"{top}/{name}")
        finish_directories(self._snapshot, top)
        # Nothing else has worked in the slot until now, so what is settled now was so all the time.
        now = SYSTEM_CLOCK.wall()
        self._states = {name: FileState.of(facts, now) for name, facts in known.items()}
        if self._own_git is not None:
            self._own_git.install(self.path, Git(self.repository.top, stop))
        self._restore_git()

    def _clear(self, stop: StopRequest) -> dict[str, os.stat_result]:
        """Remove all that differs from the snapshot; returns the facts of what remains."""
        left: dict[str, os.stat_result] = {}
        top, now = str(self.path), SYSTEM_CLOCK.wall()
        has_git = self._git is not None or self._own_git is not None
        waiting = [("", os.lstat(top).st_mode)]
        while waiting:
            above, mode = waiting.pop()
            place = f"{top}/{above}" if above else top
            if mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(place, 0o700)
            with os.scandir(place) as entries:
                found = list(entries)
            for entry in found:
                stop.check()
                name = f"{above}/{entry.name}" if above else entry.name
                if name == ".git" and has_git:
                    continue
                facts = entry.stat(follow_symlinks=False)
                if self._matches_snapshot(name, facts, now):
                    left[name] = facts
                    if stat.S_ISDIR(facts.st_mode):
                        waiting.append((name, facts.st_mode))
                else:
                    remove_tree(Path(entry.path))
        return left

    def _matches_snapshot(self, name: str, facts: os.stat_result, now: float) -> bool:
        piece = self._snapshot.pieces.get(name)
        if piece is None or piece.kind != stat.S_IFMT(facts.st_mode):
            return False
        if piece.kind == stat.S_IFDIR:
            return True
        if piece.kind == stat.S_IFLNK:
            return os.readlink(f"{self.path}/{name}") == piece.target
        before = self._states.get(name)
        if before is not None and before.proves_unchanged(FileState.of(facts, now)):
            return True
        same = (facts.st_mtime_ns, stat.S_IMODE(facts.st_mode)) == (piece.mtime_ns, piece.mode)
        return same and self._snapshot.has_content(name, self.path / name)

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
        for name in ("index.lock", "HEAD.lock"):  # left by a git that was killed
            (self._git.admin / name).unlink(missing_ok=True)


def kept_note(slot: Path) -> Path:
    """Path of the note of `Slot.keep`: beside the slot, where nothing inside can change it."""
    return slot.with_name(f"{slot.name}.kept")
