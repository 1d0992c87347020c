"""The driver's side of work in copies of slots: sends what nodes need, takes back what changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self, TypeVar, cast

from abreast.executors.names import find_executor
from abreast.executors.port import BoundCall
from abreast.worktrees.background import StopRequest, run_in_thread
from abreast.worktrees.nodes.content import ContentLister, pack
from abreast.worktrees.nodes.node import NodeAnswer, NodeRequest, SentDirectory, work_on_node
from abreast.worktrees.slot import Slot

R = TypeVar("R")

_CLOSE_GRACE: Final = 2.0  # seconds that cancelled work has until its agent is ended
_CPU: Final = "ray:CPU=1"


class NodeWork:
    """Has work done on the nodes of a cluster, each in a copy of a slot.

    The copy is made on the node that works, of files that are there from before or that the driver
    sends. The driver's directories need not be visible there. Python, abreast and what the project
    imports must be installed on every node.

        async with NodeWork("ray") as nodes:
            watched = await nodes.call(slot, RunTests("tests"))
    """

    def __init__(self, executor: str) -> None:
        """`executor` is a name such as `ray` or `ray:CPU=4`; `ray` alone takes a CPU."""
        self._name = _CPU if executor == "ray" else executor
        self._lister = ContentLister()
        self._bound: BoundCall[NodeRequest[object], NodeAnswer[object]] | None = None

    async def __aenter__(self) -> Self:
        """Connect to the cluster; raises `ClusterUnusable`."""
        self._bound = find_executor(self._name).bind(work_on_node, 1)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what still runs."""
        bound, self._bound = self._bound, None
        if bound is not None:
            await bound.close(_CLOSE_GRACE)

    async def call(
        self, slot: Slot, work: Callable[[Slot], Awaitable[R]], *, wants_changes: bool = False
    ) -> R:
        """Call `work`, which must pickle, on a node with a copy of `slot` as it is now.

        Waits until a node has room. With `wants_changes`, the slot afterwards has the files that
        the work left in its copy, also if it raised an exception; its `.git` is as before. Raises
        what the work raised, and `WorkerDied` if several nodes died.
        """
        if self._bound is None:
            raise RuntimeError("no work can be sent to nodes: it is not open")
        request: NodeRequest[object] = await run_in_thread(
            lambda stop: self._request(slot, work, stop, wants_changes=wants_changes)
        )
        answer = await self._bound.async_call(request)
        if (patch := answer.patch) is not None:
            await run_in_thread(lambda _: patch.apply(slot.path))
        if answer.error is not None:
            raise answer.error
        return cast("R", answer.result)

    def _request(
        self,
        slot: Slot,
        work: Callable[[Slot], Awaitable[object]],
        stop: StopRequest,
        *,
        wants_changes: bool,
    ) -> NodeRequest[object]:
        folders = slot.object_folders()
        # Without a git directory of its own, the slot's `.git` names a place of this machine.
        left_out = () if folders else (".git",)
        return NodeRequest(
            self._send(slot.path, stop, left_out),
            tuple(self._send(folder, stop, ("info/alternates",)) for folder in folders),
            slot.repository,
            slot.index,
            work,
            wants_changes,
        )

    def _send(self, place: Path, stop: StopRequest, without: tuple[str, ...]) -> SentDirectory:
        return SentDirectory(str(place), pack(self._lister.list(place, stop, without)))
