"""What a directory had in it at a moment, byte for byte: kept as git trees in an object database of our own.

    snapshots = Snapshots(Path(".abreast/plan.git"))
    base = snapshots.take(root)           # before a subplan starts
    result = snapshots.take(worktree)     # when it has ended
    snapshots.changes(base, result)

Neither the repository of the user nor its index or configuration is touched. Line ends, filters and merge drivers of
`.gitattributes` are off: a snapshot is what is on disk, and `merge=union` would swallow conflicts. Submodules are left
out, and so is what git ignores.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from abreast.core.clock import SYSTEM_CLOCK
from abreast.worktrees.merge.git import OURS, git, names
from abreast.worktrees.merge.listing import list_paths

REGULAR: Final = "100644"
EXECUTABLE: Final = "100755"
LINK: Final = "120000"
_EXACT: Final = "* -text -eol -ident -filter -working-tree-encoding !merge !conflict-marker-size\n"
_NOTHING: Final = "0" * 40
_TICK: Final = 50_000_000  # ns; a file system's clock may tick as slowly
# All is read again within the hour, any name was on disk already, and no reference holds anything
# in here.
_SETTINGS: Final = """
[core]
	looseCompression = 0
	protectNTFS = false
	protectHFS = false
[gc]
	auto = 0
"""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file at a moment: its mode as git writes it, and the name of its content."""

    mode: str
    blob: str

    @property
    def link(self) -> bool:
        """Whether it is a symbolic link; its content is then where it leads to."""
        return self.mode == LINK


@dataclass(frozen=True, slots=True)
class Changed:
    """A path whose entry is another one: none `before` if it was created, none `after` if it was deleted."""

    path: str
    before: TreeEntry | None
    after: TreeEntry | None


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """What is merged or left as one: a changed path, or both halves of a rename, which then has both names."""

    changed: tuple[Changed, ...]
    rename: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """What changed between two snapshots, sorted. A rename is a deletion and a creation.

    `renames` says which.
    """

    changed: tuple[Changed, ...] = ()
    renames: Mapping[str, str] = field(default_factory=dict)
    _by_path: dict[str, Changed] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Find paths at once."""
        self._by_path.update((each.path, each) for each in self.changed)

    def at(self, path: str) -> Changed | None:
        """What changed at a path; None if nothing did."""
        return self._by_path.get(path)

    def steps(self) -> Iterator[ChangeStep]:
        """What changed, with the halves of each rename together."""
        targets = set(self.renames.values())
        for each in self.changed:
            to = self.renames.get(each.path)
            if to is not None:
                yield ChangeStep((each, self._by_path[to]), (each.path, to))
            elif each.path not in targets:
                yield ChangeStep((each,))


@dataclass(slots=True)
class SeenTree:
    """How the files of a directory looked when a snapshot was taken, and the index that has their contents by name.

    Git's own way to see that a file has changed counts whole seconds, and misses one that got its
    old time back.
    """

    index: Path
    _looks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def changed(self, root: Path, paths: Sequence[str]) -> list[str]:
        """Paths that may have changed since the last time, or are no more.

        From now on, this is the last time.
        """
        before, self._looks = self._looks, {}
        now = SYSTEM_CLOCK.wall() * 1e9
        same = set()
        for path in paths:
            facts = (root / path).lstat()
            look = (
                facts.st_ino,
                facts.st_size,
                facts.st_mtime_ns,
                facts.st_ctime_ns,
                facts.st_mode,
            )
            if before.get(path) == look:
                same.add(path)
            if now - facts.st_ctime_ns > _TICK:  # or a change right after it might not show
                self._looks[path] = look
        known, self._known = self._known, set(paths)
        return sorted(known - same)

    def forget(self) -> None:
        """The snapshot was not taken: the next one reads everything."""
        self._looks = {}


class Snapshots:
    """An object database at `home`, made if there is none.

    Safe to use from several threads and processes.
    """

    def __init__(self, home: Path) -> None:
        """Open it, or make it."""
        self.home = home.absolute()
        if not (self.home / "info" / "attributes").exists():
            git(
                "init", "-q", "--bare", "--object-format=sha1", "--template=", self.home, extra=OURS
            )
            with (self.home / "config").open("a") as config:
                config.write(_SETTINGS)
            (self.home / "info").mkdir(exist_ok=True)
            (self.home / "info" / "attributes").write_text(_EXACT)

    def take(self, root: Path, seen: SeenTree | None = None, git_dir: Path | None = None) -> str:
        """The tree of what is in `root` now, without what git ignores there, or what that `git_dir` does.

        With what was `seen` there the last time, only what has changed in between is read again: of
        1,500 files in a tenth of the time. Nobody else may use that at the same time.
        """
        paths = list_paths(root, git_dir)
        if seen is not None:
            anew = seen.changed(root, paths)
            try:
                return self._take(root, paths, {"GIT_INDEX_FILE": str(seen.index)}, anew)
            except BaseException:
                seen.forget()
                raise
        with self._index() as index:
            return self._take(root, paths, index, [])

    def _take(
        self, root: Path, paths: Sequence[str], index: Mapping[str, str], anew: Sequence[str]
    ) -> str:
        place = {**index, "GIT_WORK_TREE": str(root.absolute())}
        for way, listed in (("--force-remove", anew), ("--remove", paths)):
            given = b"".join(os.fsencode(path) + b"\0" for path in listed)
            self._git(
                "update-index", "-z", "--add", way, "--stdin", stdin=given, extra=place, cwd=root
            )
        return self._git("write-tree", extra=index).strip().decode()

    def entries(self, tree: str) -> dict[str, TreeEntry]:
        """All files of a tree, by path."""
        found: dict[str, TreeEntry] = {}
        for line in names(self._git("ls-tree", "-r", "-z", tree)):
            facts, path = line.split("\t", 1)
            mode, _, blob = facts.split(" ")
            found[path] = TreeEntry(mode, blob)
        return found

    def changes(self, base: str, result: str) -> TreeDifference:
        """What is different in `result`.

        A file that moved with at least half of its content is a rename.
        """
        fields = iter(self._git("diff-tree", "-r", "-z", "-M", base, result).split(b"\0"))
        changed: list[Changed] = []
        renames: dict[str, str] = {}
        for facts in fields:
            if not facts:
                break
            old_mode, new_mode, old_blob, new_blob, status = facts.decode()[1:].split(" ")
            before, after = _entry(old_mode, old_blob), _entry(new_mode, new_blob)
            path = os.fsdecode(next(fields))
            if status.startswith("R"):
                to = os.fsdecode(next(fields))
                renames[path] = to
                changed += [Changed(path, before, None), Changed(to, None, after)]
            else:
                changed.append(Changed(path, before, after))
        return TreeDifference(tuple(sorted(changed, key=lambda each: each.path)), renames)

    def read(self, blob: str) -> bytes:
        """A content."""
        return self._git("cat-file", "blob", blob)

    def read_many(self, blobs: Iterable[str]) -> dict[str, bytes]:
        """Many contents at once, each once."""
        wanted = sorted(set(blobs))
        printed = self._git(
            "cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in wanted).encode()
        )
        found: dict[str, bytes] = {}
        at = 0
        for blob in wanted:
            end = printed.index(b"\n", at)
            size = int(printed[at:end].split(b" ")[2])
            found[blob] = printed[end + 1 : end + 1 + size]
            at = end + 1 + size + 1
        return found

    def write(self, content: bytes) -> str:
        """Keep a content; its name."""
        return self._git("hash-object", "-w", "--stdin", stdin=content).strip().decode()

    def write_tree(self, entries: Mapping[str, TreeEntry]) -> str:
        """Keep a tree of entries that are kept already; its name."""
        listed = b"".join(
            f"{entry.mode} {entry.blob}\t".encode() + os.fsencode(path) + b"\0"
            for path, entry in sorted(entries.items())
        )
        with self._index() as index:
            self._git("update-index", "-z", "--index-info", stdin=listed, extra=index)
            return self._git("write-tree", extra=index).strip().decode()

    def refer(self, name: str, tree: str) -> None:
        """Set a reference: what it refers to is never collected."""
        # By ourselves: a git that is killed in the middle leaves a lock, which stands in the way of
        # the next one.
        place = self.home / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", prefix="reference-", dir=self.home, delete=False
        ) as written:
            written.write(f"{tree}\n")
        Path(written.name).replace(place)

    def forget(self, names: Iterable[str]) -> None:
        """Remove references."""
        for name in names:
            (self.home / name).unlink(missing_ok=True)
            with suppress(OSError):  # others are there
                (self.home / name).parent.rmdir()

    def references(self, beneath: str) -> dict[str, str]:
        """The references beneath a name, which ends with a slash, and what they refer to."""
        printed = self._git("for-each-ref", "--format=%(refname) %(objectname)", beneath).decode()
        return {
            name: tree for name, _, tree in (line.partition(" ") for line in printed.splitlines())
        }

    def _git(
        self,
        *arguments: str,
        stdin: bytes = b"",
        extra: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> bytes:
        place = {**OURS, "GIT_DIR": str(self.home), **(extra or {})}
        return git(*arguments, stdin=stdin, extra=place, cwd=cwd).stdout

    @contextmanager
    def _index(self) -> Iterator[dict[str, str]]:
        with tempfile.TemporaryDirectory(prefix="index-", dir=self.home) as place:
            yield {"GIT_INDEX_FILE": str(Path(place, "index"))}


def _entry(mode: str, blob: str) -> TreeEntry | None:
    return None if blob == _NOTHING else TreeEntry(mode, blob)
