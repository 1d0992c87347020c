"""The row of a cell that has ended, done or failed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Self

FINAL_STATES: Final = ("done", "failed")


@dataclass(frozen=True, slots=True)
class SubResult:
    """One call, or one step, on the way to a cell's output."""

    name: str
    prompt: str
    output: str
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    service_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One cell.

    Its seconds add up to `wall_s`: `queue_s` until a place on its lane was free, `hold_s` after a
    429, `backoff_s` after other faults, and `service_s` for the provider's own time.
    """

    cell: str
    lane: str
    model: str
    strategy: str
    input: str
    repeat: int
    state: Literal["done", "failed"]
    control: bool = False
    prompt: str = ""
    output: str | None = None
    value: Any = None
    truth: Any = None
    error: str | None = None
    error_type: str | None = None
    scores: dict[str, float | None] = field(default_factory=dict)
    score_errors: dict[str, str] = field(default_factory=dict)
    steps: tuple[SubResult, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    estimated: bool = False
    judge_input_tokens: int = 0
    judge_output_tokens: int = 0
    judge_usd: float | None = 0.0
    """The cost of the calls to judges, which is not in `usd`; None if it is not known."""
    service_s: float = 0.0
    queue_s: float = 0.0
    hold_s: float = 0.0
    backoff_s: float = 0.0
    wall_s: float = 0.0
    attempts: int = 1
    in_flight: int = 1
    """How many calls its lane had in flight when it was sent, including itself."""

    def plain(self) -> dict[str, Any]:
        """The row in JSON's own types."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """The row from what `plain` returned."""
        return cls(
            **{**facts, "steps": tuple(SubResult(**step) for step in facts.get("steps", ()))}
        )
