"""A sample: branches by rounds, what the checks said of each draw, and which draw was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from abreast.core.events import CALL_SETTLED, ITEM_SETTLED, RUN_RESUMED, Event
from abreast.store.port import RunRow
from abreast.views.job_view import (
    listed,
    manifest_of,
    many,
    mapping,
    number,
    short,
    value_in,
    whole,
)

_STARTED: Final = "sample-started"
_ENDED: Final = "sample-ended"
_DRAW_STARTED: Final = "draw-started"
_DRAW_ENDED: Final = "draw-ended"

_DRAWS: Final = 400  # that are shown
_ROUNDS: Final = 24
_TEXT: Final = 300
_REASON: Final = 160
_CHECKS: Final = 8
_PROMPT: Final = 2_000
STATES: Final = ("passed", "failed", "error", "cancelled", "drawing", "cut off")


@dataclass(slots=True)
class _Draw:
    number: int
    state: str = "drawing"
    text: str = ""
    why: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class SampleFold:
    """What has happened in a sample so far."""

    KINDS: ClassVar = frozenset(
        {_STARTED, _ENDED, _DRAW_STARTED, _DRAW_ENDED, CALL_SETTLED, ITEM_SETTLED, RUN_RESUMED}
    )

    def __init__(self) -> None:
        """Nothing yet."""
        self._path: str | None = None
        self._breadth = self._depth = 0
        self._draws: dict[tuple[int, int], _Draw] = {}
        self._branches: dict[str, int] = {}  # by path
        self._now: dict[str, _Draw] = {}  # the draw that a branch is at
        self._ended: Mapping[str, Any] | None = None
        self._why: dict[int, str] = {}

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.kind == _STARTED and self._path in (None, event.path):
            self._path = event.path
            self._breadth, self._depth = (
                whole(event.data.get("breadth")) or 0,
                whole(event.data.get("depth")) or 0,
            )
            self._ended = None
        elif event.kind == RUN_RESUMED:
            self._ended = None
            self._cut_off()
        elif event.kind == _ENDED and event.path == self._path:
            self._ended = event.data
        elif self._path is not None and event.path.startswith(f"{self._path}/"):
            self._in_branch(event)

    def _in_branch(self, event: Event) -> None:
        if event.kind in (_DRAW_STARTED, _DRAW_ENDED):
            self._drawn(event)
        elif event.kind == CALL_SETTLED:
            draw = self._now.get(event.path.partition("/call/")[0])
            if (
                draw is not None and not draw.text
            ):  # the first call of a draw is its own; judges come after it
                draw.text = short(mapping(value_in(event)).get("text"), _TEXT)
                draw.facts = {
                    "seconds": sum(filter(None, map(number, listed(event.data.get("service"))))),
                    "tokens": (whole(event.data.get("output_tokens")) or 0),
                    "model": event.data.get("model"),
                }
        elif event.path in self._branches:
            self._settled(event, self._branches[event.path])

    def _drawn(self, event: Event) -> None:
        branch, number_of_round = whole(event.data.get("branch")), whole(event.data.get("round"))
        if branch is None or number_of_round is None:
            return
        self._branches[event.path] = branch
        place = (branch, number_of_round)
        draw = self._draws.setdefault(place, _Draw(whole(event.data.get("number")) or 0))
        if event.kind == _DRAW_STARTED:
            draw.state = "drawing"
            self._now[event.path] = draw
        else:
            draw.state = str(event.data.get("state"))
            draw.why = short(event.data.get("why"), _REASON)
            self._now.pop(event.path, None)

    def _settled(self, event: Event, branch: int) -> None:
        """A branch has ended: what is recorded of it says more than the events on the way."""
        if event.data.get("state") == "cancelled":
            self._why[branch] = short(event.data.get("reason"), _REASON)
        for one in map(
            mapping, listed(value_in(event)) if event.data.get("state") == "done" else ()
        ):
            if (number_of_round := whole(one.get("round"))) is None:
                continue
            place = (branch, number_of_round)
            draw = self._draws.setdefault(place, _Draw(whole(one.get("number")) or 0))
            draw.state = str(one.get("state"))
            draw.text = short(one.get("text"), _TEXT)
            verdicts = [mapping(verdict) for verdict in listed(one.get("verdicts"))]
            draw.facts = {
                "seconds": number(one.get("seconds")),
                "tokens": mapping(one.get("usage")).get("output_tokens"),
                "model": short(one.get("model"), _REASON),
                "error": short(one.get("error"), _REASON) or None,
                "verdicts": [
                    {
                        "check": short(verdict.get("check"), _REASON),
                        "ok": bool(verdict.get("ok")),
                        "reason": short(verdict.get("reason"), _REASON),
                        "score": number(verdict.get("score")),
                    }
                    for verdict in verdicts[:_CHECKS]
                ],
                "more_verdicts": max(0, len(verdicts) - _CHECKS),
            }

    def _cut_off(self) -> None:
        for draw in self._now.values():
            draw.state = "cut off"
        self._now.clear()

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """The tree; of many branches and rounds the first, the chosen draw's among them."""
        if state != "running":
            self._cut_off()
        asked, paths = (
            manifest_of(run, "sample"),
            {branch: path for path, branch in self._branches.items()},
        )
        chosen = self._chosen()
        deepest = max((number_of_round + 1 for _, number_of_round in self._draws), default=1)
        rounds = min(deepest, _ROUNDS)
        begun = sorted(paths)
        shown = begun[: max(1, _DRAWS // rounds)]
        if chosen is not None and chosen[0] not in shown:
            shown = [*shown[:-1], chosen[0]]
        return {
            "prompt": short(asked.get("prompt"), _PROMPT),
            "model": short(asked.get("model"), _REASON),
            "strategy": asked.get("strategy") or "rejection",
            "pick": asked.get("pick") or "ordered",
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
        """The draws of a branch that are shown: the first, and the chosen one wherever it is."""
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
        """How the draws of each round fared, over all branches."""
        counts: dict[int, Counter[str]] = {}
        for (_, number_of_round), draw in self._draws.items():
            counts.setdefault(number_of_round, Counter())[draw.state] += 1
        return [{"round": one, **counts[one]} for one in sorted(counts)[:_ROUNDS]]

    @staticmethod
    def _cut(begun: int, shown: int, deepest: int, rounds: int) -> str | None:
        said = [f"{shown:,} of {many(begun, 'branch')}"] if shown < begun else []
        said += [f"{rounds} of {many(deepest, 'round')}"] if rounds < deepest else []
        return f"shown: {' and '.join(said)}" if said else None
