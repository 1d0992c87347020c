"""What is printed when a run stops early: one sentence and the command that resumes it."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from abreast.cli.errors import SPENT, explain, tell
from abreast.cli.signals import Interrupts
from abreast.cli.stores import StoreChoice
from abreast.core.errors import AbreastError, BudgetSpent, StoreGone

STOPS: Final = (KeyboardInterrupt, asyncio.CancelledError, AbreastError)
"""The exceptions that stop a run early."""


class EarlyExit(NamedTuple):
    """Why a run stopped, its exit code, and options that `abreast resume` needs."""

    why: str
    code: int
    more: str = ""
    resumable: bool = True

    def tell(self, run_id: str, choice: StoreChoice) -> int:
        """Print it with the command that resumes the run; return the exit code."""
        hint = (
            f"; go on with: abreast resume {run_id}{self.more}{choice.flag}"
            if run_id and self.resumable
            else ""
        )
        tell(f"{self.why}{hint}")
        return self.code


def early_exit_by(error: BaseException, interrupts: Interrupts) -> EarlyExit:
    """The early exit for one of the `STOPS`."""
    if isinstance(error, BudgetSpent):
        return EarlyExit(str(error), SPENT, " --budget MORE")
    if isinstance(error, AbreastError):
        return EarlyExit(*explain(error), resumable=not isinstance(error, StoreGone))
    return EarlyExit(interrupts.word, interrupts.code)
