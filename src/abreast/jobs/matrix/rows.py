"""The row of a cell that has ended, done or failed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Self

FINAL_STATES: Final = ("done", "failed")
_FLAT_COLUMNS: Final = (
    "cell",
    "lane",
    "model",
    "strategy",
    "input",
    "repeat",
    "state",
    "control",
    "output",
    "error",
    "error_type",
    "input_tokens",
    "output_tokens",
    "usd",
    "estimated",
    "service_s",
    "queue_s",
    "hold_s",
    "backoff_s",
    "wall_s",
    "attempts",
    "in_flight",
)

_JUDGE_COLUMNS: Final = ("judge_input_tokens", "judge_output_tokens", "judge_usd")


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

    def flat(self) -> dict[str, Any]:
        """The row on one level, without its prompt and steps: a column for each score."""
        truth = (
            self.truth
            if isinstance(self.truth, str) or self.truth is None
            else json.dumps(self.truth, ensure_ascii=False)
        )
        return {
            **{name: getattr(self, name) for name in _FLAT_COLUMNS},
            "truth": truth,
            **{f"score_{name}": value for name, value in self.scores.items()},
            "score_errors": json.dumps(self.score_errors) if self.score_errors else None,
            **{name: getattr(self, name) for name in _JUDGE_COLUMNS},
        }


def flat_rows(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows on one level, all with the same columns; None where one has no value."""
    found = [one.flat() for one in rows]
    columns = list(dict.fromkeys(name for row in found for name in row))
    return [{name: row.get(name) for name in columns} for row in found]
