"""The file operations of apply and undo, and the reading of file states."""

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from abreast.worktrees.merge.errors import SourceChanged
from abreast.worktrees.merge.snapshots import EXECUTABLE, LINK, REGULAR, Changed, TreeEntry

# The errors of a file system without hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})
_READ: Final = 0o444
_ALL_EXECUTE: Final = 0o111


class Disk:
    """All operations of apply on the tree before its commit; a test can make any of them fail."""

    def make_folder(self, place: Path) -> None:
        """Make a directory."""
        place.mkdir()

    def write(self, place: Path, content: bytes) -> None:
        """Write a new file, and sync it to the disk."""
        with place.open("xb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())

    def link(self, place: Path, to: bytes) -> None:
        """Make a symbolic link."""
        place.symlink_to(os.fsdecode(to))

    def set_mode(self, place: Path, mode: int) -> None:
        """Set the permissions of a file."""
        place.chmod(mode)

    def move(self, place: Path, to: Path) -> None:
        """Rename: at any moment the file is at one of the two paths."""
        place.rename(to)

    def place(self, new: Path, to: Path) -> None:
        """Move a file to a path where none exists.

        Raises `FileExistsError` if one has just appeared, which a rename would replace.
        """
        try:
            os.link(new, to, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(to):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(to)) from None
            new.rename(to)
        else:
            new.unlink()

    def remove_folder(self, place: Path) -> None:
        """Remove an empty directory."""
        place.rmdir()

    def bring(self, place: Path, to: Path) -> None:
        """Make a hard link to a file, or a copy where the file system has no hard links."""
        try:
            os.link(place, to, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copy2(place, to, follow_symlinks=False)


def check(root: Path, each: Changed) -> None:
    """Raise `SourceChanged` if a path is not as it was merged, or is reached by a link."""
    for folder in reversed(Path(each.path).parents):
        if (root / folder).is_symlink() and folder != Path():
            raise SourceChanged(
                f"{folder.as_posix()} is a link by now, and {each.path} was beneath it"
            )
    if state(root / each.path) != each.before:
        raise SourceChanged(f"{each.path} is not what was merged with")


def state(place: Path) -> TreeEntry | None:
    """The entry that a snapshot would have for a path; None if there is no file or link."""
    try:
        found = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(found.st_mode):
        return TreeEntry(LINK, _blob(os.fsencode(place.readlink())))
    if not stat.S_ISREG(found.st_mode):
        return None
    return TreeEntry(
        EXECUTABLE if found.st_mode & stat.S_IXUSR else REGULAR, _blob(place.read_bytes())
    )


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def permissions(place: Path, new: Path, entry: TreeEntry) -> int:
    """The mode of the replaced file, or of any new one; executable or not as merged."""
    replaced = place.is_file() and not place.is_symlink()
    mode = stat.S_IMODE((place if replaced else new).stat().st_mode)
    plain = mode & ~_ALL_EXECUTE
    if entry.mode != EXECUTABLE:
        return plain
    return mode if mode & stat.S_IXUSR else plain | (plain & _READ) >> 2


def missing_folders(
    root: Path, changed: Sequence[Changed], others: Iterable[str] = ()
) -> list[str]:
    """Directories to make, for files and for `others`, upper ones first."""
    wanted = {
        folder for each in changed if each.after is not None for folder in Path(each.path).parents
    }
    missing = [folder for folder in wanted.union(map(Path, others)) if not (root / folder).is_dir()]
    return sorted(folder.as_posix() for folder in missing)


def replaced_folders(root: Path, changed: Sequence[Changed]) -> list[str]:
    """Directories that a file replaces, and those beneath them, lower ones first."""
    tops = [root / each.path for each in changed if each.after is not None and each.before is None]
    found: list[str] = []
    for top in tops:
        if top.is_dir() and not top.is_symlink():
            found += [
                Path(place).relative_to(root).as_posix()
                for place, _, _ in os.walk(top, topdown=False)
            ]
    return found


def folders_of_deleted(changed: Sequence[Changed]) -> list[str]:
    """The directories above deleted files, lower ones first.

    As in git, a directory is removed with its last file.
    """
    found = {folder for each in changed if each.after is None for folder in Path(each.path).parents}
    return sorted((folder.as_posix() for folder in found - {Path()}), reverse=True)
