"""The errors of the plan job.

AbreastError
|-- PlanInvalid       a plan can't be made of what was given  (also a ValueError)
|-- SubplanFailed     the work of a subplan failed; what it wrote is in `details`
|   `-- EditRefused   a model's reply can't be written: it has no edit, or breaks a rule
`-- PlanFailed        some subplans are not done
"""

from abreast.core.errors import AbreastError


class PlanInvalid(AbreastError, ValueError):
    """A plan can't be made of its input; the message says what is wrong."""

    retryable = False


class SubplanFailed(AbreastError):
    """The work of a subplan failed.

    Its output, and the snapshots before and after it, are in `details`.
    """

    def __init__(self, message: str, details: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.details = details or {}


class EditRefused(SubplanFailed):
    """A model's reply can't be written into the files of its subplan.

    The message says what is wrong with it.
    """


class PlanFailed(AbreastError):
    """Some subplans are not done."""
