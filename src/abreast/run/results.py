"""Whether a run succeeded, by what came of its items: one rule for scripts, maps and jobs."""

from __future__ import annotations

from abreast.core.errors import Halted
from abreast.core.frozen import record
from abreast.core.run_end import NONE_DONE, STOPPED_AT


@record(slots=True)
class Results:
    """How many items of a scope succeeded and failed: those of its own maps, not what is beneath their items."""

    done: int = 0
    failed: int = 0
    what: str = ""
    """What a job counts instead of items, such as `cell`: then what its maps handed out is not added."""

    def add(self, done: int, failed: int) -> None:
        """Count what a map, or a scope within this one, came to."""
        if not self.what:
            self.done += done
            self.failed += failed

    @property
    def why_failed(self) -> str | None:
        """Why a run with these results has failed; None if it has not."""
        if self.done or not self.failed:
            return None
        named = f" {self.what}{'s' if self.failed > 1 else ''}" if self.what else ""
        return f"{NONE_DONE}: {self.failed}{named} failed"


class StoppedAtFailure(Halted):
    """A map that was asked to stop at its first failure has stopped there."""

    def __init__(self, key: str) -> None:
        """`key` is that of the failed item."""
        super().__init__(f"{STOPPED_AT}: item {key} failed")
