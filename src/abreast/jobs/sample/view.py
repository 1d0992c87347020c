"""The view of a sample: branches by rounds, the verdicts on each draw, and the chosen draw."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from abreast.core.events import AGENT_STEP, CALL_SETTLED, ITEM_SETTLED, RUN_RESUMED, Event
from abreast.jobs.sample.draw_context import (
    DRAW_ENDED,
    DRAW_STARTED,
    SAMPLE_ENDED,
    SAMPLE_STARTED,
)
from abreast.models.conversation import asked_text
from abreast.store.port import RunRow
from abreast.views.job_view import (
    LiveText,
    listed,
    manifest_of,
    many,
    mapping,
    number,
    short,
    value_in,
    whole,
)
from abreast.views.progress import LastSteps

_MAX_DRAWS: Final = 400
_MAX_ROUNDS: Final = 24
_TEXT_CHARACTERS: Final = 300
_REASON_CHARACTERS: Final = 160
_MAX_CHECKS: Final = 8
_PROMPT_CHARACTERS: Final = 2_000
STATES: Final = ("passed", "failed", "error", "cancelled", "drawing", "cut off")


@dataclass(slots=True)
class _Draw:
    number: int
    state: str = "drawing"
    text: str = ""
    why: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class SampleView:
    """Collects the events of a sample."""

    KINDS: ClassVar = frozenset(
        {
            SAMPLE_STARTED,
            SAMPLE_ENDED,
            DRAW_STARTED,
            DRAW_ENDED,
            CALL_SETTLED,
            ITEM_SETTLED,
            RUN_RESUMED,
        }
    )

    def __init__(self) -> None:
        self._path: str | None = None
        self._breadth = self._depth = 0
        self._draws: dict[tuple[int, int], _Draw] = {}
        self._branches: dict[str, int] = {}  # by path
        self._current_draws: dict[str, _Draw] = {}  # by path of a branch: the draw that is running
        self._ended: Mapping[str, Any] | None = None
        self._why: dict[int, str] = {}

    def add(self, event: Event) -> None:
        """Add the next event."""
        if event.kind == SAMPLE_STARTED and self._path in (None, event.path):
            self._path = event.path
            self._breadth, self._depth = (
                whole(event.data.get("breadth")) or 0,
                whole(event.data.get("depth")) or 0,
            )
            self._ended = None
        elif event.kind == RUN_RESUMED:
            self._ended = None
            self._cut_off()
        elif event.kind == SAMPLE_ENDED and event.path == self._path:
            self._ended = event.data
        elif self._path is not None and event.path.startswith(f"{self._path}/"):
            self._add_branch_event(event)

    def _add_branch_event(self, event: Event) -> None:
        if event.kind in (DRAW_STARTED, DRAW_ENDED):
            self._add_draw(event)
        elif event.kind == CALL_SETTLED:
            draw = self._current_draws.get(event.path.partition("/call/")[0])
            # The first call of a draw is its own; those of judges come after it.
            if draw is not None and not draw.text:
                draw.text = short(mapping(value_in(event)).get("text"), _TEXT_CHARACTERS)
                draw.facts = {
                    "seconds": sum(filter(None, map(number, listed(event.data.get("service"))))),
                    "tokens": (whole(event.data.get("output_tokens")) or 0),
                    "model": event.data.get("model"),
                }
        elif event.path in self._branches:
            self._add_settled_branch(event, self._branches[event.path])

    def _add_draw(self, event: Event) -> None:
        branch, round_of_round = whole(event.data.get("branch")), whole(event.data.get("round"))
        if branch is None or round_of_round is None:
            return
        self._branches[event.path] = branch
        draw = self._draws.setdefault(
            (branch, round_of_round), _Draw(whole(event.data.get("number")) or 0)
        )
        if event.kind == DRAW_STARTED:
            draw.state = "drawing"
            self._current_draws[event.path] = draw
        else:
            draw.state = str(event.data.get("state"))
            draw.why = short(event.data.get("why"), _REASON_CHARACTERS)
            self._current_draws.pop(event.path, None)

    def _add_settled_branch(self, event: Event, branch: int) -> None:
        """Take the draws of a branch that has ended from its record, which has more than events."""
        if event.data.get("state") == "cancelled":
            self._why[branch] = short(event.data.get("reason"), _REASON_CHARACTERS)
        for one in map(
            mapping, listed(value_in(event)) if event.data.get("state") == "done" else ()
        ):
            if (round_of_round := whole(one.get("round"))) is None:
                continue
            draw = self._draws.setdefault(
                (branch, round_of_round), _Draw(whole(one.get("number")) or 0)
            )
            draw.state = str(one.get("state"))
            draw.text = short(one.get("text"), _TEXT_CHARACTERS)
            verdicts = [mapping(verdict) for verdict in listed(one.get("verdicts"))]
            draw.facts = {
                "seconds": number(one.get("seconds")),
                "tokens": mapping(one.get("usage")).get("output_tokens"),
                "model": short(one.get("model"), _REASON_CHARACTERS),
                "error": short(one.get("error"), _REASON_CHARACTERS) or None,
                "verdicts": [
                    {
                        "check": short(verdict.get("check"), _REASON_CHARACTERS),
                        "ok": bool(verdict.get("ok")),
                        "reason": short(verdict.get("reason"), _REASON_CHARACTERS),
                        "score": number(verdict.get("score")),
                    }
                    for verdict in verdicts[:_MAX_CHECKS]
                ],
                "more_verdicts": max(0, len(verdicts) - _MAX_CHECKS),
            }

    def _cut_off(self) -> None:
        for draw in self._current_draws.values():
            draw.state = "cut off"
        self._current_draws.clear()

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """Return the branches; of very many the first ones and that of the chosen draw."""
        if state != "running":
            self._cut_off()
        manifest, paths = (
            manifest_of(run, "sample"),
            {branch: path for path, branch in self._branches.items()},
        )
        chosen = self._chosen()
        deepest = max((round_of_round + 1 for _, round_of_round in self._draws), default=1)
        rounds = min(deepest, _MAX_ROUNDS)
        begun = sorted(paths)
        shown = begun[: max(1, _MAX_DRAWS // rounds)]
        if chosen is not None and chosen[0] not in shown:
            shown = [*shown[:-1], chosen[0]]
        return {
            "prompt": short(asked_text(manifest), _PROMPT_CHARACTERS),
            "model": short(manifest.get("model"), _REASON_CHARACTERS),
            "strategy": manifest.get("strategy") or "rejection",
            "pick": manifest.get("pick") or "ordered",
            "breadth": self._breadth,
            "depth": self._depth,
            "over": self._ended is not None,
            "ok": None if self._ended is None else bool(self._ended.get("ok")),
            "chosen": None if chosen is None else {"branch": chosen[0], "round": chosen[1]},
            "counts": Counter(draw.state for draw in self._draws.values()),
            "branches": [
                {
                    "branch": branch,
                    "path": paths[branch],
                    "why": self._why.get(branch),
                    "draws": self._row(branch, rounds, chosen),
                }
                for branch in shown
            ],
            "rounds": self._by_round(),
            "cut": self._cut(len(begun), len(shown), deepest, rounds),
        }

    def _chosen(self) -> tuple[int, int] | None:
        winner = None if self._ended is None else whole(self._ended.get("winner"))
        return (
            next((place for place, draw in self._draws.items() if draw.number == winner), None)
            if winner
            else None
        )

    def _row(
        self, branch: int, rounds: int, chosen: tuple[int, int] | None
    ) -> list[dict[str, object]]:
        """Return the draws of a branch that are shown: the first ones, and the chosen one."""
        numbers = [one for one in range(rounds) if (branch, one) in self._draws]
        if chosen is not None and chosen[0] == branch and chosen[1] >= rounds:
            numbers.append(chosen[1])
        return [
            {
                "round": one,
                "number": draw.number,
                "state": draw.state,
                "text": draw.text,
                "why": draw.why,
                **draw.facts,
            }
            for one in numbers
            for draw in [self._draws[branch, one]]
        ]

    def _by_round(self) -> list[dict[str, object]]:
        """Count the draws of each round by state, over all branches."""
        counts: dict[int, Counter[str]] = {}
        for (_, round_of_round), draw in self._draws.items():
            counts.setdefault(round_of_round, Counter())[draw.state] += 1
        return [{"round": one, **counts[one]} for one in sorted(counts)[:_MAX_ROUNDS]]

    @staticmethod
    def _cut(begun: int, shown: int, deepest: int, rounds: int) -> str | None:
        parts = [f"{shown:,} of {many(begun, 'branch')}"] if shown < begun else []
        parts += [f"{rounds} of {many(deepest, 'round')}"] if rounds < deepest else []
        return f"shown: {' and '.join(parts)}" if parts else None


class SampleLive(LiveText):
    """The live line of a sample: the round of each branch, and how many draws have ended."""

    interval = 0.0

    def __init__(self) -> None:
        self._rounds: dict[int, int] = {}
        self._ended = 0
        self._agents = LastSteps()

    def add(self, event: Event) -> bool:
        """Add an event; those of draws, and of agents, change the line."""
        branch, round_ = event.data.get("branch"), event.data.get("round")
        if event.kind == DRAW_STARTED and isinstance(branch, int) and isinstance(round_, int):
            self._rounds[branch] = round_ + 1
        elif event.kind == DRAW_ENDED:
            self._ended += 1
            self._agents.end(event.path)
        elif event.kind == AGENT_STEP:
            self._agents.add(event)
        elif event.kind == ITEM_SETTLED:  # a branch that was cancelled in a draw
            self._agents.end(event.path)
        else:
            return False
        return True

    def parts(self) -> Iterator[tuple[str, str]]:
        """The parts of the line, each with its style."""
        rounds = " ".join(f"{branch}:{self._rounds[branch]}" for branch in sorted(self._rounds))
        yield f"branch:round {rounds}", ""
        yield f"{self._ended} draws ended", ""
        yield self._agents.text(), "dim"
