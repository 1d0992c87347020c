"""A pool of slots, which are temporary copies of a project's working tree.

    async with open_worktrees("path/of/project", 4) as trees:
        async with abreast.open_run("try", lanes={"worktrees": abreast.Pool(trees.slots)}) as run:
            # `evaluate` finds its slot in current().held["worktrees"]
            async for outcome in run.map(evaluate, candidates, width=4, hold="worktrees"):
                ...

While the pool is open, the repository has one entry per slot in `.git/worktrees`, each a detached
HEAD at the commit that is checked out. Afterwards it has none. It never gains an object, a ref, a
stash, a hook or an index entry. With `own_git` it has no entry at all: each slot has a git
directory of its own (`own_git.py`), and git commands in the slot can't reach the repository.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.errors import AbreastError
from abreast.executors.commands import Commands
from abreast.executors.names import is_remote
from abreast.store.driver_locks import DriverLocks
from abreast.system.paths import cache_directory, worktrees_directory
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.errors import Interrupted, WorktreesLeft, WorktreesUnavailable
from abreast.worktrees.git import TIMEOUT, Git, GitFailed, Repository, find_project
from abreast.worktrees.ignored_files import list_ignored
from abreast.worktrees.nodes.driver import NodeWork
from abreast.worktrees.own_git import OwnGit
from abreast.worktrees.ownership_log import (
    OwnershipEntry,
    OwnershipLog,
    owner_is_alive,
    process_start,
    repository_lock,
)
from abreast.worktrees.slot import Slot, kept_note
from abreast.worktrees.staging import MEMORY_BYTES, Snapshot, list_tree, remove_tree, take_snapshot

# Names in a pool's directory that are not slots.
_POOL_PARTS: Final = frozenset({"stage", "scratch", "git", "git.part"})
_PARALLEL_COPIES: Final = 4  # slots filled at once; the disk is saturated by that many


@dataclass(frozen=True, slots=True)
class SlotFailed:
    """A slot that could not be made, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class NotRemoved:
    """Something on the disk that was not removed, and why."""

    path: str
    reason: str


class Worktrees:
    """An async context manager whose slots exist only inside the block.

    Entering raises WorktreesUnavailable if not one slot can be made, and leaves nothing behind.
    Leaving removes all slots, and raises WorktreesLeft if some can't be removed. When either is
    cancelled, it first removes all slots, then raises the cancellation.
    """

    def __init__(
        self,
        root: Path,
        count: int,
        cache: Path,
        timeout: float,
        clock: Clock,
        *,
        own_git: bool = False,
        ignored: bool = False,
        executor: str = "local",
    ) -> None:
        self._ignored = ignored
        self._executor = executor
        # The slots, to be used as the resources of an `abreast.Pool`.
        self.slots: tuple[Slot, ...] = ()
        # Slots that could not be made, although others could.
        self.failures: tuple[SlotFailed, ...] = ()
        # Notes on files of the working tree that are not in the slots.
        self.notes: tuple[str, ...] = ()
        # What could not be removed: stale slots with changes in them, and slots of this pool.
        self.left: tuple[NotRemoved, ...] = ()
        self._root = root
        self._count = count
        self._cache = cache
        self._timeout = timeout
        self._clock = clock
        self._own_git = own_git
        self._commands = contextlib.AsyncExitStack()
        self._storage: _PoolStorage | None = None
        self._snapshot: Snapshot | None = None

    def __repr__(self) -> str:
        return f"<Worktrees of {self._root}, {len(self.slots)} of {self._count} slots>"

    @property
    def repository(self) -> Repository | None:
        """The repository of the working tree; None before it is opened, and with no slots."""
        return self._storage.repository if self._storage else None

    async def digest(self) -> str:
        """A digest of the content that all slots start from, the same on any machine."""
        snapshot = self._snapshot
        if snapshot is None or not self.slots:
            raise WorktreesUnavailable("there are no slots")
        return await run_in_thread(lambda _: snapshot.digest())

    async def ignored_digest(self) -> str:
        """A digest of the ignored files that may be imported; empty if the slots have none."""
        snapshot = self._snapshot
        return "" if snapshot is None else await run_in_thread(lambda _: snapshot.ignored_digest())

    async def __aenter__(self) -> Self:
        """Make the slots; waits for git and for the copies."""
        if not self._count:
            return self
        try:
            await run_in_thread(self._open)
            commands = await self._commands.enter_async_context(Commands())
            nodes = None
            if is_remote(self._executor):
                nodes = await self._commands.enter_async_context(NodeWork(self._executor))
            for slot in self.slots:
                slot.commands, slot.nodes = commands, nodes
        except BaseException as error:
            await self._close_slots()
            if isinstance(error, OSError | GitFailed):
                raise WorktreesUnavailable(f"no worktrees of {self._root}: {error}") from error
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the commands that still run in slots, and remove all slots."""
        before = len(self.left)
        await self._close_slots()
        if failed := self.left[before:]:
            message = "; ".join(f"{left.path} was left behind: {left.reason}" for left in failed)
            if error is None:
                raise WorktreesLeft(message)
            error.add_note(message)

    async def _close_slots(self) -> None:
        for slot in self.slots:
            slot.commands = slot.nodes = None
        try:
            await self._commands.aclose()
        finally:
            if (storage := self._storage) is not None:
                self.left += await run_in_thread(lambda _: storage.remove())

    def _open(self, stop: StopRequest) -> None:
        repository = find_project(self._root, stop, self._timeout)
        storage = _PoolStorage(
            repository, self._cache, self._timeout, self._clock, own_git=self._own_git
        )
        if storage.home.is_relative_to(repository.top):
            raise WorktreesUnavailable(
                f"the cache directory {self._cache} is inside of {repository.top}: "
                "set ABREAST_CACHE to another place"
            )
        self._storage = storage
        self.left = storage.prepare(self._count, stop)
        git = Git(repository.top, stop, self._timeout)
        listing = list_tree(repository, git)
        if self._ignored:
            names, notes = list_ignored(repository, git, stop)
            listing = replace(listing, ignored=tuple(names), notes=(*listing.notes, *notes))
        self._snapshot = snapshot = take_snapshot(
            repository, listing, storage.pool / "stage", stop, MEMORY_BYTES
        )
        self.notes = snapshot.notes
        made, failures = storage.make(snapshot, stop)
        self.slots, self.failures = tuple(made), tuple(failures)
        if not made:
            reasons = "; ".join(sorted({failure.reason for failure in failures}))
            raise WorktreesUnavailable(
                f"none of {self._count} worktrees of {repository.top} could be made: {reasons}"
            )


class _PoolStorage:
    """The directory `home` of all pools of one repository, and the directory of this pool in it.

    home/ledger.jsonl    the ownership log: which slots may exist
    home/owners/N.lock   held by the process that owns pool N
    home/N/              pool N: `stage` (the snapshot), `scratch` (for commands), `git`
                         (`own_git.py`) and the slots
    """

    def __init__(
        self,
        repository: Repository,
        cache: Path,
        timeout: float,
        clock: Clock,
        *,
        own_git: bool = False,
    ) -> None:
        self._own_git = own_git and repository.common is not None
        self.repository = repository
        self.home = pools_directory(repository, cache)
        self.number = secrets.randbits(62)
        self.pool = self.home / f"{self.number:x}"
        self.entries: list[OwnershipEntry] = []
        self._log = OwnershipLog(self.home / "ledger.jsonl")
        self._locks = DriverLocks(str(self.home / "owners"))
        self._timeout = timeout
        self._clock = clock
        self._prepared = False
        self._has_pool = False

    @contextlib.contextmanager
    def _git(self, stop: StopRequest) -> Iterator[Git]:
        with repository_lock(self.repository.place, stop, self._timeout, self._clock) as lock:
            yield Git(self.repository.top, stop, self._timeout, lock)

    def prepare(self, count: int, stop: StopRequest) -> tuple[NotRemoved, ...]:
        """Remove the slots of dead processes, and record the slots to be made.

        Returns what can't be removed.
        """
        with self._git(stop) as git:
            self._prepared = True
            _make_directory(self.home)
            left = self._reap(git)
            self._locks.take(self.number)
            self.entries = [self._entry(index) for index in range(count)]
            if self.entries:
                self._log.add(self.entries)
            self.pool.mkdir(mode=0o700)
            self._has_pool = True
            (self.pool / "scratch").mkdir(mode=0o700)
            return left

    def _entry(self, index: int) -> OwnershipEntry:
        name = f"abreast-{self.number:x}-{index}"
        return OwnershipEntry(
            name=name,
            path=str(self.pool / name),
            slot=index,
            pool=self.number,
            repository=str(self.repository.place),
            head=self.repository.head if self.repository.is_linked and not self._own_git else None,
            pid=os.getpid(),
            started=process_start(os.getpid()) or "",
        )

    def make(self, snapshot: Snapshot, stop: StopRequest) -> tuple[list[Slot], list[SlotFailed]]:
        """Make the recorded slots, several at once.

        A slot that fails is removed and returned as a failure; the others continue.
        """
        made: list[Slot] = []
        failures: list[SlotFailed] = []
        entries = list(self.entries)
        own = OwnGit(self.repository, snapshot, self.pool / "git") if self._own_git else None
        with ThreadPoolExecutor(min(len(entries), _PARALLEL_COPIES), "abreast-slot") as threads:
            futures = [
                threads.submit(self._make_one, entry, snapshot, own, stop) for entry in entries
            ]
        for entry, future in zip(entries, futures, strict=True):
            try:
                made.append(future.result())
            except Interrupted:
                raise
            except (OSError, AbreastError) as error:
                failures.append(SlotFailed(entry.slot, str(error)))
        return made, failures

    def _make_one(
        self, entry: OwnershipEntry, snapshot: Snapshot, own: OwnGit | None, stop: StopRequest
    ) -> Slot:
        path = Path(entry.path)
        # Made here, not by git, which would accept an existing directory if it is empty.
        path.mkdir(mode=0o700)
        slot = Slot(entry.slot, path, self.repository, snapshot, self.pool / "scratch", own_git=own)
        try:
            if entry.head is not None:
                with self._git(stop) as git:
                    # A commit's id, not a branch's name: so git sets up no tracking.
                    git("worktree", "add", "--detach", "--no-checkout", path, entry.head)
                    slot.record_git_files(replace(git, place=path))
            slot.restore(stop)
        except (OSError, AbreastError):
            self._remove([entry])
            raise
        return slot

    def remove(self) -> tuple[NotRemoved, ...]:
        """Remove the slots, and the directory of the pool.

        Returns what could not be removed; it stays in the ownership log.
        """
        if not self._prepared:
            return ()
        left = self._remove(list(self.entries))
        try:
            with self._git(StopRequest()):
                if left:  # without an owner: the next pool of any process tries again
                    self._log.add(replace(entry, pid=0, started="") for entry in self.entries)
                elif self._has_pool:
                    remove_tree(self.pool)
                self._locks.free(self.number, for_good=not left)
                self._remove_empty_directories()
        except (OSError, AbreastError) as error:
            self._locks.free(self.number)
            left.append(NotRemoved(str(self.pool), str(error)))
        return tuple(left)

    def _remove_empty_directories(self) -> None:
        for place in (self.home / "owners", self.home, self.home.parent):
            with contextlib.suppress(OSError):
                place.rmdir()

    def _remove(self, entries: list[OwnershipEntry]) -> list[NotRemoved]:
        """Remove slots: first their files, which is slow, then git's entries, under the lock."""
        if not entries:
            return []
        # Removing a file waits for the disk, so several slots are removed at once.
        with ThreadPoolExecutor(min(len(entries), _PARALLEL_COPIES), "abreast-slot") as threads:
            left = [failure for failure in threads.map(_remove_files, entries) if failure]
        stuck = {failure.path for failure in left}
        try:
            with self._git(StopRequest()) as git:  # a new request: this must not be interrupted
                for entry in entries:
                    if entry.path not in stuck and (
                        failure := _unregister(entry, git, self.repository)
                    ):
                        left.append(failure)
                        stuck.add(entry.path)
                self._drop([entry for entry in entries if entry.path not in stuck])
        except (OSError, AbreastError) as error:
            return [NotRemoved(entry.path, str(error)) for entry in entries]
        return left

    def _drop(self, entries: list[OwnershipEntry]) -> None:
        self._log.drop([entry.name for entry in entries])
        self.entries = [entry for entry in self.entries if entry not in entries]

    def _reap(self, git: Git) -> tuple[NotRemoved, ...]:
        """Remove the slots of dead processes, unless their state in git was changed.

        Returns those that remain.
        """
        left: list[NotRemoved] = []
        pools: dict[int, list[OwnershipEntry]] = {}
        for entry in self._log.entries().values():
            pools.setdefault(entry.pool, []).append(entry)
        for number, entries in pools.items():
            if any(map(owner_is_alive, entries)) or not self._locks.take(number):
                continue
            kept = [failure for entry in entries if (failure := self._reap_one(entry, git))]
            left += kept
            self._release(number, keep=bool(kept))
        for number in self._abandoned_pools() - pools.keys():
            if self._locks.take(number):  # else a process is about to make or remove it
                # It is removed if it has only directories that every pool has. A slot is removed
                # only by its entry in the ownership log; other names may not be ours.
                keep = not _POOL_PARTS.issuperset(_list_names(self.home / f"{number:x}"))
                self._release(number, keep=keep)
        return tuple(left)

    def _release(self, number: int, *, keep: bool) -> None:
        """Free the lock of a pool without an owner, and remove its directory unless it is kept."""
        with contextlib.suppress(OSError):
            if not keep:
                remove_tree(self.home / f"{number:x}")
        self._locks.free(number, for_good=not keep)

    def _abandoned_pools(self) -> set[int]:
        """Numbers of pools that have a directory or a lock file.

        A pool whose owner was killed while it was removed is not in the ownership log.
        """
        pools = {
            int(name, 16) for name in _list_names(self.home) if re.fullmatch(r"[0-9a-f]+", name)
        }
        locks = [re.fullmatch(r"(\d+)\.lock", name) for name in _list_names(self.home / "owners")]
        return pools.union(int(lock[1]) for lock in locks if lock)

    def _reap_one(self, entry: OwnershipEntry, git: Git) -> NotRemoved | None:
        path = Path(entry.path)
        if path.parent != self.home / f"{entry.pool:x}" or entry.repository != str(
            self.repository.place
        ):
            return NotRemoved(
                entry.path,
                "the ownership log names it, but it is not where slots of this repository are",
            )
        if reason := _reason_to_keep(entry, self.repository):
            return NotRemoved(entry.path, reason)
        failure = _remove_files(entry) or _unregister(entry, git, self.repository)
        if failure is None:
            self._log.drop([entry.name])
        return failure


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A slot whose owner died after `Slot.keep`, with the note of that call."""

    path: Path
    note: str

    def let_go(self) -> None:
        """Remove the note: the content is saved, and the next pool may remove the slot."""
        kept_note(self.path).unlink(missing_ok=True)


def unfinished_in(root: str | Path, *, cache: str | Path | None = None) -> list[Unfinished]:
    """The slots of a project whose owners died and whose content must not be lost."""
    stop = StopRequest()
    repository = find_project(Path(root), stop)
    log = OwnershipLog(
        pools_directory(repository, cache_directory() if cache is None else Path(cache))
        / "ledger.jsonl"
    )
    with repository_lock(repository.place, stop, TIMEOUT):
        entries = list(log.entries().values())
    found = []
    for entry in entries:
        path = Path(entry.path)
        if not owner_is_alive(entry) and path.is_dir():
            with contextlib.suppress(FileNotFoundError):
                found.append(Unfinished(path, kept_note(path).read_text("utf-8")))
    return found


def has_pools(root: str | Path, *, cache: str | Path | None = None) -> bool:
    """Whether a project has a pool, one that is open or one whose owner died."""
    repository = find_project(Path(root), StopRequest())
    return pools_directory(repository, cache_directory() if cache is None else Path(cache)).is_dir()


def has_dead_pools(root: str | Path, *, cache: str | Path | None = None) -> bool:
    """Whether a project has a slot whose owner died.

    It does not wait for the lock of the repository: a slot that is made just now may be missed.
    """
    repository = find_project(Path(root), StopRequest())
    place = pools_directory(repository, cache_directory() if cache is None else Path(cache))
    entries = OwnershipLog(place / "ledger.jsonl").entries().values()
    return any(not owner_is_alive(entry) for entry in entries)


def reap_worktrees(root: str | Path, *, cache: str | Path | None = None) -> tuple[NotRemoved, ...]:
    """Remove the pools of dead owners, as every new pool does; returns what can't be removed."""
    stop = StopRequest()
    place = cache_directory() if cache is None else Path(cache)
    storage = _PoolStorage(find_project(Path(root), stop), place, TIMEOUT, SYSTEM_CLOCK)
    return storage.prepare(0, stop) + storage.remove()


def pools_directory(repository: Repository, cache: Path) -> Path:
    """The directory of the pools of a repository."""
    return worktrees_directory(Path(os.path.realpath(cache))) / repository.name


def _list_names(place: Path) -> list[str]:
    try:
        return os.listdir(place)  # noqa: PTH208 - only names are needed
    except FileNotFoundError:
        return []


def _make_directory(place: Path) -> None:
    """Make a directory and its parents, also while another process removes them as empty."""
    while True:
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileNotFoundError:
            continue
        return


def _remove_files(entry: OwnershipEntry) -> NotRemoved | None:
    try:
        remove_tree(Path(entry.path))
    except OSError as error:
        return NotRemoved(entry.path, str(error))
    return None


def _git_entry(entry: OwnershipEntry, repository: Repository) -> Path | None:
    """The directory of git's entry for a slot; None if it has none."""
    place = repository.place / "worktrees" / entry.name
    return place if entry.head is not None and place.is_dir() else None


def _unregister(entry: OwnershipEntry, git: Git, repository: Repository) -> NotRemoved | None:
    """Remove git's entry for a slot whose files are removed already."""
    admin = _git_entry(entry, repository)
    if admin is not None:
        try:
            git("worktree", "remove", "--force", "--force", entry.path)
        except GitFailed as error:
            # Damaged by a candidate, or half made. Its name has this pool's number in it, so it is
            # ours to remove.
            try:
                remove_tree(admin)
            except OSError:
                return NotRemoved(entry.path, str(error))
    # Git leaves the directory empty if it is ended while it adds the first worktree.
    with contextlib.suppress(OSError):
        (repository.place / "worktrees").rmdir()
    return None


def _reason_to_keep(entry: OwnershipEntry, repository: Repository) -> str | None:
    if kept_note(Path(entry.path)).exists():
        return "it holds work that was cut off, and that has not been taken out of it yet"
    admin = _git_entry(entry, repository)
    if admin is None:
        return None
    if (admin / "locked").exists():
        return "it is locked (git worktree lock)"
    try:
        head = (admin / "HEAD").read_text().strip()
    except FileNotFoundError:  # the owner was killed while it made the slot
        return None
    unchanged = head in {entry.head, "0" * len(entry.head or "")}
    return None if unchanged else f"something was checked out or committed in it ({head})"


def open_worktrees(
    root: str | Path,
    count: int,
    *,
    cache: str | Path | None = None,
    timeout: float = TIMEOUT,
    clock: Clock = SYSTEM_CLOCK,
    own_git: bool = False,
    ignored: bool = False,
    executor: str = "local",
) -> Worktrees:
    """Open a pool of up to `count` copies of the working tree that `root` is in.

    Returns an async context manager; it has no slots if `count` is 0.

    The slots start with the current content: tracked files, changed or not, and untracked ones that
    aren't ignored; on request also ignored ones, within bounds. A directory without git, or without
    a commit, is copied. Slots that can't be made are in `failures`.

    Args:
        root: the top of a working tree, or a directory in it.
        count: how many slots.
        cache: where they are made; `ABREAST_CACHE`, or `abreast` in the user's cache directory.
        timeout: seconds that one git command, or the wait for the repository's lock, may take.
        clock: measures the wait for the lock.
        own_git: give each slot a git directory of its own, so that no git command in it reaches
            the repository.
        ignored: whether slots also get ignored files that tests may need; see
            `abreast.worktrees.ignored_files`.
        executor: with `ray`, the slots have `nodes`, which do work in copies of them, and a git
            directory of their own, as that of `own_git`, which travels with them.
    """
    if isinstance(count, bool) or count != int(count) or count < 0:
        raise ValueError(f"the number of worktrees is 0 or more, not {count!r}")
    place = cache_directory() if cache is None else Path(cache)
    return Worktrees(
        Path(root),
        count,
        place,
        timeout,
        clock,
        own_git=own_git or is_remote(executor),
        ignored=ignored,
        executor=executor,
    )
