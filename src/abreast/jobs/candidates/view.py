"""Candidates for a faster function: what became of each, how fast it is and how surely, and its patch."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar, Final

from abreast.core.events import (
    ITEM_SETTLED,
    ITEM_STARTED,
    MAP_STARTED,
    RUN_ENDED,
    RUN_RESUMED,
    Event,
)
from abreast.core.item import escape, unescape
from abreast.jobs.candidates.registry import Link, Registry, child_of
from abreast.jobs.candidates.results import Checked, Diff, Proposal, Timed, Tried, best_of, patch_of
from abreast.jobs.candidates.source.target import Target
from abreast.store.port import RunRow
from abreast.views.job_view import (
    failure_in,
    listed,
    manifest_of,
    many,
    mapping,
    number,
    short,
    value_in,
)

_TRIES: Final = "tries"
_ROWS: Final = 200  # candidates that are shown
_PATCH: Final = 8_000
_PATCHES: Final = 400_000  # characters of all patches
_TEXT: Final = 400
_DIFFS: Final = 5


class CandidatesFold:
    """What is recorded of a run's candidates so far. The job's own roll says what it comes to."""

    KINDS: ClassVar = frozenset({ITEM_SETTLED, ITEM_STARTED, MAP_STARTED, RUN_RESUMED, RUN_ENDED})

    def __init__(self) -> None:
        """Nothing yet."""
        self._done: dict[str, object] = {}  # steps beneath the run, by what comes after its name
        self._failed: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self._under_way: dict[str, str] = {}  # candidates, and what is done with them
        self._first: Registry | None = (
            None  # with the first candidates, each parsed and compared once
        )
        self._tried: list[Tried] | None = None  # until something else is recorded
        self._patches: dict[str, str] = {}  # by text

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.kind in (RUN_RESUMED, RUN_ENDED):
            self._under_way.clear()
            return
        place = event.path.partition("/")[2]
        if event.kind == ITEM_SETTLED:
            self._settled(event, place)
        elif (named := _candidate(place)) is not None and place not in self._done:
            self._under_way[named[1]] = named[0]

    def _settled(self, event: Event, place: str) -> None:
        state = event.data.get("state")
        self._tried = None
        if place == "sources":
            self._first = None
        self._paths[place] = event.path
        if (named := _candidate(place)) is not None and place.count("/") == 2:  # noqa: PLR2004 - tries, map, name
            self._under_way.pop(named[1], None)
        if state == "done":
            self._done[place] = value_in(event)
            self._failed.pop(place, None)
        elif state == "failed":
            self._failed[place] = failure_in(event)

    # --- the picture --------------------------------------------------------------------------------------------------

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """The candidates in the order of the result; of very many the first."""
        facts = manifest_of(run, "candidates")
        spec = mapping(facts.get("spec"))
        file, _, name = str(facts.get("target") or spec.get("target") or "").partition("::")
        original = facts.get("original")
        if self._tried is None:
            self._tried = (
                self._replayed(Target(file, name), original) if isinstance(original, str) else []
            )
        tried = self._tried
        winner = best_of(tried)
        shown = tried[:_ROWS]
        if winner is not None and winner not in shown:
            shown = [*shown[:-1], winner]
        floors = [
            one.timed.noise_floor
            for one in tried
            if one.timed and one.timed.noise_floor is not None
        ]
        seen = mapping(mapping(self._done.get(f"{_TRIES}/original")).get("watched"))
        room = [_PATCHES]
        return {
            "target": short(f"{file}::{name}", _TEXT),
            "state": state,
            "threshold": number(spec.get("threshold")),
            "known": isinstance(original, str),
            "winner": winner and winner.name,
            "noise_floor": number(max(floors, default=None)),
            "baseline": {
                "tests": seen.get("tests"),
                "passed": seen.get("passed"),
                "calls": len(listed(seen.get("invocations"))),
            }
            if seen
            else None,
            "confinement": [short(one, _TEXT) for one in listed(seen.get("confinement"))[:40]],
            "candidates": [self._told(one, str(original), file, room) for one in shown],
            "trouble": [
                short(f"{place}: {said}", _TEXT) for place, said in list(self._failed.items())[:10]
            ],
            "cut": f"shown: {_ROWS:,} of {many(len(tried), 'candidate')}"
            if len(tried) > _ROWS
            else None,
        }

    def _replayed(self, target: Target, original: str) -> list[Tried]:
        """What the engine made of these results, in its order."""
        if self._first is None:
            self._first = Registry(target, original)
            found = map(_proposal, map(mapping, listed(self._done.get("sources"))))
            self._first.enter(proposal for proposal in found if proposal is not None)
        roll = deepcopy(self._first)
        self._round(roll, "")
        faster = roll.faster
        texts = [str(text) for text in listed(self._done.get(f"{_TRIES}/refine"))]
        roll.enter(
            child_of(one, text, "refinement")
            for one, text in zip(faster, texts, strict=False)
            if text.strip()
        )
        self._round(roll, "-refined")
        adapted = []
        for one in roll.faster:
            text = self._done.get(f"{_TRIES}/adapt-{one.name}")
            if one.origin == "refinement" and isinstance(text, str) and text.strip():
                adapted.append(child_of(one, text, "adaptive"))
        roll.enter(adapted)
        self._round(roll, "-adapted")
        return list(roll.tried.values())

    def _round(self, roll: Registry, ending: str) -> None:
        for name in list(roll.tried):
            place = f"{_TRIES}/candidate{ending}/{escape(name)}"
            if place in self._done and (
                links := [_link(mapping(one)) for one in listed(self._done[place])]
            ):
                roll.settle(name, links)
            elif place in self._failed:
                roll.settle(name, [Link("", Checked("error", self._failed[place]))])
        for name in list(roll.tried):
            place = f"{_TRIES}/measure{ending}/{escape(name)}"
            if place in self._done:
                roll.time(name, _timed(mapping(self._done[place])))
            elif place in self._failed:
                roll.time(name, Timed("error", self._failed[place]))
        roll.copy_to_duplicates()

    def _told(self, one: Tried, original: str, file: str, room: list[int]) -> dict[str, object]:
        timed, checked = one.timed, one.checked
        at = self._under_way.get(one.name)
        if one.text not in self._patches:
            self._patches[one.text] = patch_of(original, one.text, file) if one.size else one.text
        patch = self._patches[one.text]
        cut = short(patch, min(_PATCH, max(0, room[0])) or 1)
        room[0] -= len(cut)
        places = [f"{_TRIES}/{held}/{escape(one.name)}" for held in ("measure", "candidate")]
        return {
            "name": short(one.name, _TEXT),
            "origin": one.origin,
            "parent": one.parent,
            "of": one.of,
            "verdict": at or one.verdict,
            "under_way": at is not None,
            "reason": short(one.reason, _TEXT),
            "ratio": number(timed and timed.ratio),
            "low": number(timed and timed.low),
            "high": number(timed and timed.high),
            "noise": number(timed and timed.noise_floor),
            "memory": number(timed and timed.memory_ratio),
            "blocks": timed.blocks if timed else None,
            "size": one.size,
            "patch": cut,
            "patch_cut": len(patch) - len(cut) if len(cut) < len(patch) else 0,
            "notes": [short(note, _TEXT) for note in (*timed.regressions, *timed.notes)[:8]]
            if timed
            else [],
            "diffs": [
                {
                    "call": short(diff.invocation, _TEXT),
                    "where": short(f"{diff.part}{diff.path[1:]}", _TEXT),
                    "original": short(diff.original, _TEXT),
                    "candidate": short(diff.candidate, _TEXT),
                    "reason": short(diff.reason, _TEXT),
                }
                for diff in (
                    sorted(checked.diffs, key=lambda diff: diff.part == "test")[:_DIFFS]
                    if checked
                    else ()
                )
            ],
            "more_diffs": max(0, len(checked.diffs) - _DIFFS) if checked else 0,
            "path": next((self._paths[place] for place in places if place in self._paths), None),
        }


def _candidate(place: str) -> tuple[str, str] | None:
    """What is done with a candidate at this place, and with which."""
    parts = place.split("/")
    if len(parts) < 3 or parts[0] != _TRIES:  # noqa: PLR2004 - tries, map, name
        return None
    if parts[1].startswith("measure"):
        return "measuring", unescape(parts[2])
    if not parts[1].startswith("candidate"):
        return None
    step = parts[3] if len(parts) > 3 else "behaviour"  # noqa: PLR2004
    return "repairing" if step.startswith("repair") else "checking", unescape(parts[2])


# --- the job's records, from what the journal has of them -------------------------------------------------------------


def _proposal(facts: Mapping[str, Any]) -> Proposal | None:
    if not isinstance(facts.get("name"), str) or not isinstance(facts.get("text"), str):
        return None
    try:
        return Proposal(**facts)
    except TypeError:  # of another version
        return None


def _link(facts: Mapping[str, Any]) -> Link:
    checked = dict(mapping(facts.get("checked")))
    try:
        diffs = tuple(Diff(**mapping(diff)) for diff in listed(checked.pop("diffs", ())))
        return Link(str(facts.get("text")), Checked(**{**checked, "diffs": diffs}))
    except TypeError:
        return Link("", Checked("error", "it was recorded by another version of abreast"))


def _timed(facts: Mapping[str, Any]) -> Timed:
    try:
        return Timed(
            **{
                **facts,
                "regressions": tuple(listed(facts.get("regressions"))),
                "notes": tuple(listed(facts.get("notes"))),
            }
        )
    except TypeError:
        return Timed("error", "it was recorded by another version of abreast")
