"""Mutants: abreast with one promise broken on purpose, so that the checker is seen to notice.

A mutant is a few lines that Python runs when it starts. The job meets the fault until the count
that the mutant is for is no longer 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken promise: the count that has to show it, and with which job and fault it does."""

    count: str
    job: str
    fault: str
    code: str

    def write(self, folder: Path) -> str:
        """Write it where Python finds it at its start; returns the directory."""
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(self.code)
        return str(folder)


MUTANTS: Final = {
    "commits are dropped": Mutant(
        "lost",
        "commands",
        "kill driver",
        """
from abreast.store.writer import CommitWriter
commit, numbers = CommitWriter._commit, iter(range(10**9))
def _commit(self, batches):
    if next(numbers) % 3 != 2:
        return commit(self, batches)
    self._call_on_loop(self._acknowledge, batches, 0, 0.0)
    self._unflushed.put([call for batch in batches for call in batch.durable])
CommitWriter._commit = _commit
""",
    ),
    "recorded outcomes are not looked up": Mutant(
        "recorded_repeated",
        "commands",
        "kill driver",
        """
from abreast.run.map.journal import MapJournal
async def lookup(self, items, *, charged=False):
    return {}
MapJournal.lookup = lookup
""",
    ),
    "places are free before the commit": Mutant(
        "repeated_beyond_width",
        "commands",
        "kill driver",
        """
from abreast.store.writer import CommitWriter
def write(self, event, written=None, durable=None):
    self._batch.events.append(event)
    if self._commit_timer is None:
        self._commit_timer = self._loop.call_later(2.0, self._queue_batch)
    for call in (written, durable):
        if call is not None:
            self._loop.call_soon(call)
CommitWriter.write = write
""",
    ),
    "seeds differ in each process": Mutant(
        "changed",
        "sample",
        "kill driver",
        """
import abreast.core.seeds, os
derive = abreast.core.seeds.derive_seed
abreast.core.seeds.derive_seed = lambda seed, path: derive(seed + os.getpid(), path)
""",
    ),
    "the budget refuses nothing": Mutant(
        "budget_passed",
        "budget",
        "kill driver",
        """
from abreast.limits.budget import Budget
Budget.refusal = lambda self, need, now: None
""",
    ),
    "the price is another": Mutant(
        "miscounted",
        "prompts",
        "kill driver",
        """
from abreast.models.price import FlatPrice
of = FlatPrice.of
FlatPrice.of = lambda self, *tokens, **parts: 1.01 * of(self, *tokens, **parts)
""",
    ),
    "worktrees are not removed": Mutant(
        "left",
        "plan",
        "SIGTERM",
        """
from abreast.worktrees import pool
pool._remove_files = lambda entry: None
pool.remove_tree = lambda place: None
""",
    ),
    "errors are not explained": Mutant(
        "tracebacks",
        "commands",
        "store full",
        """
import abreast.cli.errors
def explain(error):
    raise error
abreast.cli.errors.explain = explain
""",
    ),
    "work is done in the project itself": Mutant(
        "tree_changed",
        "plan",
        "kill driver",
        """
import pathlib, sys
if "plan" in sys.argv:
    pathlib.Path("part00/text.txt").write_text("new")
""",
    ),
    "the end of a run waits forever": Mutant(
        "hung",
        "commands",
        "Ctrl-C",
        """
import asyncio
from abreast.store.writer import CommitWriter
async def close(self):
    await asyncio.shield(asyncio.get_running_loop().create_future())
CommitWriter.close = close
""",
    ),
}
