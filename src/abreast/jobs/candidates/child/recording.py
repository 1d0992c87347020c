"""Logs the calls of the target in a program that is not ours, for `--trace`.

It is loaded as the program's interpreter starts. Each process of the program writes a file of its
own, a line for each call whose arguments have not been seen: the seconds that it took, and the
snapshot of its arguments. An error in here never reaches the program.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from time import perf_counter  # noqa: TID251 - which calls take long; no verdict stands on it
from types import ModuleType
from typing import Any, cast

from abreast.jobs.candidates.child.capture import active, untraced, write_line
from abreast.jobs.candidates.child.paths import Places, SlotFinder
from abreast.jobs.candidates.child.wrapping import TargetMissing, install
from abreast.jobs.candidates.values.snapshot import pack
from abreast.jobs.candidates.values.take_snapshot import take_snapshot

MOST_LOGGED = 2_000  # different calls
MOST_SEEN = 20_000  # calls that are looked at
MOST_PARTS = 3_000  # of the arguments of a call that is logged


class CallLogger:
    """Takes the place of a recorder: logs the arguments of outermost calls."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._digests: set[bytes] = set()
        self._looked_at = 0

    def begin(
        self, args: tuple[object, ...], kwargs: dict[str, object], *, method: bool
    ) -> "_LoggedCall | None":
        """Begin a call; None if the target makes it itself, or if enough have been seen."""
        if active() or self._looked_at >= MOST_SEEN or len(self._digests) >= MOST_LOGGED:
            return None
        self._looked_at += 1
        parts: dict[str, object] = {"arguments": args, "keywords": kwargs}
        if method and args:
            # A class is found by the name of the target.
            owner = None if isinstance(args[0], type) else args[0]
            parts = {"self": owner, "arguments": args[1:], "keywords": kwargs}
        with contextlib.suppress(Exception), untraced():
            snapshot = take_snapshot(parts, consume=False, nodes=MOST_PARTS)
            digest = hashlib.sha256(pack(snapshot)).digest()
            if digest not in self._digests:
                self._digests.add(digest)
                return _LoggedCall(self, snapshot.nodes)
        return _LoggedCall(self, None)

    def write(self, seconds: float, nodes: object) -> None:
        """Write a line to the file of this process."""
        with contextlib.suppress(Exception):
            path = os.path.join(self._directory, f"calls-{os.getpid()}.jsonl")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open(path, flags, 0o600)
            try:
                write_line(file, [seconds, nodes])
            finally:
                os.close(file)


class _LoggedCall:
    """An outermost call; it is logged when it has ended, unless it was seen before."""

    def __init__(self, logger: CallLogger, nodes: object) -> None:
        self._logger, self._nodes = logger, nodes

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        began = perf_counter()
        try:
            with untraced():
                yield
        finally:
            if self._nodes is not None:
                self._logger.write(perf_counter() - began, self._nodes)

    def raised(self, error: BaseException) -> None:
        """Do nothing: only arguments are logged."""

    def hand_on(self, result: object) -> object:
        """Return the result."""
        return result


def start(directory: str) -> None:
    """Log the calls of the target of the orders in this directory, whenever it is imported."""
    with open(os.path.join(directory, "trace.json"), encoding="utf-8") as file:
        orders = json.load(file)
    logger = CallLogger(directory)

    def around(module: ModuleType, execute: Callable[[], None]) -> None:
        execute()
        with contextlib.suppress(TargetMissing):
            install(module, orders["qualname"], cast("Any", logger))

    places = Places(orders["top"], orders["top"])
    sys.meta_path.insert(0, SlotFinder(places, orders["file"], around))
