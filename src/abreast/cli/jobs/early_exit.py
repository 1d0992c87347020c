"""How a run that the command line drives is stopped before its end: one sentence, its exit code, and how to go on."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from abreast.cli.errors import SPENT, explain, tell
from abreast.cli.signals import Interrupts
from abreast.cli.stores import StoreChoice
from abreast.core.errors import AbreastError, BudgetSpent, StoreGone

STOPS: Final = (KeyboardInterrupt, asyncio.CancelledError, AbreastError)
"""What stops a run, wherever it comes from."""


class CutShort(NamedTuple):
    """Why it stopped, the exit code, and what must be added to go on."""

    why: str
    code: int
    more: str = ""
    resumable: bool = True

    def tell(self, run_id: str, choice: StoreChoice) -> int:
        """Say so, and how to go on with what there is of the run; the exit code."""
        hint = (
            f"; go on with: abreast resume {run_id}{self.more}{choice.flag}"
            if run_id and self.resumable
            else ""
        )
        tell(f"{self.why}{hint}")
        return self.code


def cut_short_by(error: BaseException, interrupts: Interrupts) -> CutShort:
    """What to say of one of the `STOPS`."""
    if isinstance(error, BudgetSpent):
        return CutShort(str(error), SPENT, " --budget MORE")
    if isinstance(error, AbreastError):
        return CutShort(*explain(error), resumable=not isinstance(error, StoreGone))
    return CutShort(interrupts.word, interrupts.code)
