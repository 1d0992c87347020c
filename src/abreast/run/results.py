"""The rule by which a run succeeded or failed, the same for scripts, maps and jobs."""

from abreast.core.errors import Halted
from abreast.core.frozen import record
from abreast.core.run_end import NONE_DONE, STOPPED_AT


@record(slots=True)
class Results:
    """How many items of a scope's own maps succeeded and failed.

    Items of maps beneath those items are not counted.
    """

    done: int = 0
    failed: int = 0
    # What a job counts instead of items, such as `cell`; outcomes of maps are then not added.
    what: str = ""

    def add(self, done: int, failed: int) -> None:
        """Add the counts of a map, or of a scope within this one."""
        if not self.what:
            self.done += done
            self.failed += failed

    @property
    def why_failed(self) -> str | None:
        """Why a run with these results has failed; None if it has not."""
        if self.done or not self.failed:
            return None
        noun = f" {self.what}{'s' if self.failed > 1 else ''}" if self.what else ""
        return f"{NONE_DONE}: {self.failed}{noun} failed"


class StoppedAtFailure(Halted):
    """A map with `on_error="halt"` has stopped at its first failure."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{STOPPED_AT}: item {key} failed")
