"""A store that dies in the middle of a run, within one process.

What it had not taken is lost, as by a kill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from abreast.core.errors import StoreFull
from abreast.core.events import Event
from abreast.store.port import Store


class Dying:
    """Passes everything on to a real store, until it has taken so many commits.

    Then every commit is a `StoreFull`.
    """

    def __init__(self, store: Store, commits: int) -> None:
        self._store, self._left = store, commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(
        self, run_id: str, epoch: int, events: Sequence[Event], spent: Mapping[str, float]
    ) -> None:
        if self._left == 0:
            raise StoreFull("it takes no more")
        self._left -= 1
        self._store.commit(run_id, epoch, events, spent)
