"""The side of a node: makes a copy of a slot, has work done in it, sends back what has changed."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from abreast.executors.commands import Commands
from abreast.executors.port import DRIVER
from abreast.system.paths import cache_directory
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.git import Repository
from abreast.worktrees.nodes.cache import NodeCache
from abreast.worktrees.nodes.content import Content, ContentLister, Patch, unpack
from abreast.worktrees.own_git import write_alternates
from abreast.worktrees.slot import Slot
from abreast.worktrees.staging import Snapshot

R = TypeVar("R")

PART_BYTES: Final = 4 << 20  # of files that are sent at once
_GIT: Final = ".git"


@dataclass(frozen=True, slots=True)
class SentDirectory:
    """A directory of the driver, and its packed content."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class NodeRequest(Generic[R]):
    """Work for a node, in a copy of a slot."""

    slot: SentDirectory
    objects: tuple[SentDirectory, ...]
    """Where git finds the objects of the slot's own git directory, if it has one."""
    repository: Repository
    index: int
    work: Callable[[Slot], Awaitable[R]]
    wants_changes: bool


@dataclass(frozen=True, slots=True)
class NodeAnswer(Generic[R]):
    """What the work returned or raised, and what it changed in the slot, if that is wanted."""

    result: R | None = None
    error: Exception | None = None
    patch: Patch | None = None


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some bytes of a file of the driver."""

    path: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Reads files where the driver is; nodes have the driver call it."""

    is_remembered: ClassVar = False
    parts: tuple[FilePart, ...]

    async def __call__(self) -> list[bytes]:
        """Read them in a thread."""
        return await run_in_thread(lambda _: [_read(part) for part in self.parts])


def _read(part: FilePart) -> bytes:
    with Path(part.path).open("rb") as file:
        return os.pread(file.fileno(), part.size, part.start)


async def work_on_node(request: NodeRequest[R]) -> NodeAnswer[R]:
    """Do the work in a copy of the slot; what is on the node ends with this call.

    It asks the driver for the files that no earlier call has brought here.
    """
    cache = NodeCache(cache_directory() / "nodes")
    for sent in (request.slot, *request.objects):
        await _fetch(cache, sent.path, unpack(sent.content))
    with cache.workplace() as place:
        await run_in_thread(lambda stop: _make_slot(cache, place, request, stop))
        async with Commands() as commands:
            slot = _slot_at(place, request)
            slot.commands = commands
            answer = await _do(request.work, slot)
        if not request.wants_changes:
            return answer
        patch = await run_in_thread(lambda stop: _changes(request.slot, slot.path, stop))
        return NodeAnswer(answer.result, answer.error, patch)


def _make_slot(cache: NodeCache, place: Path, request: NodeRequest[Any], stop: StopRequest) -> None:
    top = place / "slot"
    (place / "scratch").mkdir(mode=0o700)
    cache.fill(unpack(request.slot.content), top, stop)
    if request.objects:
        folders = [cache.objects(unpack(sent.content), stop) for sent in request.objects]
        write_alternates(top / _GIT, folders)


async def _do(work: Callable[[Slot], Awaitable[R]], slot: Slot) -> NodeAnswer[R]:
    try:
        return NodeAnswer(await work(slot))
    except Exception as error:  # noqa: BLE001 - raised by the driver, after the changes are there
        return NodeAnswer(error=error)


def _slot_at(place: Path, request: NodeRequest[Any]) -> Slot:
    top = place / "slot"
    # It is removed after the work, and never reset: it needs no snapshot.
    return Slot(request.index, top, request.repository, Snapshot(top, {}), place / "scratch")


def _changes(sent: SentDirectory, top: Path, stop: StopRequest) -> Patch:
    def is_work(name: str) -> bool:
        return name != _GIT and not name.startswith(f"{_GIT}/")

    after = ContentLister().list(top, stop, without={_GIT})
    before = {name: one for name, one in unpack(sent.content).items() if is_work(name)}
    return Patch.between(before, after, top)


async def _fetch(cache: NodeCache, top: str, content: Content) -> None:
    """Have the driver send the files that are missing here."""
    missing: dict[str, tuple[str, int]] = {}
    for name, entry in content.items():
        if entry.kind == stat.S_IFREG and entry.content not in missing:
            missing[entry.content] = (f"{top}/{name}", entry.size)
    wanted = await asyncio.to_thread(
        lambda: {digest: one for digest, one in missing.items() if not cache.has(digest)}
    )
    small = [one for one in wanted.items() if one[1][1] <= PART_BYTES]
    for batch in _batches(small):
        parts = tuple(FilePart(path, 0, max(size, 1)) for _, (path, size) in batch)
        sent = await _ask(ReadFiles(parts))
        await asyncio.to_thread(_store_all, cache, [one[0] for one in batch], sent)
    for digest, (path, size) in wanted.items():
        if size > PART_BYTES:
            with cache.adding(digest) as file:
                for start in range(0, size, PART_BYTES):
                    (data,) = await _ask(ReadFiles((FilePart(path, start, PART_BYTES),)))
                    await asyncio.to_thread(file.write, data)


async def _ask(wanted: ReadFiles) -> list[bytes]:
    driver = DRIVER.get()
    if driver is None:  # this is the driver's own process
        return await wanted()
    sent: list[bytes] = await driver.ask(wanted)
    return sent


def _store_all(cache: NodeCache, digests: Iterable[str], sent: list[bytes]) -> None:
    for digest, data in zip(digests, sent, strict=True):
        with cache.adding(digest) as file:
            file.write(data)


def _batches(
    files: list[tuple[str, tuple[str, int]]],
) -> Iterable[list[tuple[str, tuple[str, int]]]]:
    batch: list[tuple[str, tuple[str, int]]] = []
    total = 0
    for one in files:
        if batch and total + one[1][1] > PART_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(one)
        total += one[1][1]
    if batch:
        yield batch
