"""The view of a candidates run: verdict, speed with its interval, and patch of each candidate."""

import contextlib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, ClassVar, Final

from abreast.core.events import (
    AGENT_STEP,
    ITEM_SETTLED,
    ITEM_STARTED,
    MAP_STARTED,
    RUN_ENDED,
    RUN_RESUMED,
    Event,
)
from abreast.core.item import escape, unescape
from abreast.jobs.candidates.registry import Link, Registry, child_of, has_text
from abreast.jobs.candidates.results import (
    Checked,
    Diff,
    Proposal,
    Timed,
    Tried,
    best_of,
    change_patch,
    largest_noise_floor,
)
from abreast.jobs.candidates.source.changes import CandidateSource, FileChange
from abreast.jobs.candidates.source.target import Target
from abreast.store.port import RunRow
from abreast.views.job_view import (
    LiveText,
    failure_in,
    listed,
    manifest_of,
    many,
    mapping,
    number,
    short,
    value_in,
)
from abreast.views.progress import LastSteps

_TRIES_STEP: Final = "tries"
_MAX_CANDIDATES: Final = 200
_PATCH_CHARACTERS: Final = 8_000
_ALL_PATCHES_CHARACTERS: Final = 400_000
_TEXT_CHARACTERS: Final = 400
_MAX_DIFFS: Final = 5


class CandidatesView:
    """Collects the records of a run's candidates; the job's own registry derives the results."""

    KINDS: ClassVar = frozenset({ITEM_SETTLED, ITEM_STARTED, MAP_STARTED, RUN_RESUMED, RUN_ENDED})

    def __init__(self) -> None:
        self._done: dict[str, object] = {}  # results of steps, by path below the run
        self._failed: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self._under_way: dict[str, str] = {}  # by candidate: what is being done with it
        # With the first candidates, so that each is parsed and compared only once.
        self._initial_registry: Registry | None = None
        self._tried: list[Tried] | None = None  # cached until the next event
        # By the text and the other files of a candidate.
        self._patches: dict[tuple[str, tuple[FileChange, ...]], str] = {}

    def add(self, event: Event) -> None:
        """Add the next event."""
        if event.kind in (RUN_RESUMED, RUN_ENDED):
            self._under_way.clear()
            return
        place = event.path.partition("/")[2]
        if event.kind == ITEM_SETTLED:
            self._add_settled(event, place)
        elif (named := _candidate_at(place)) is not None and place not in self._done:
            self._under_way[named[1]] = named[0]

    def _add_settled(self, event: Event, place: str) -> None:
        state = event.data.get("state")
        self._tried = None
        if place == "sources":
            self._initial_registry = None
        self._paths[place] = event.path
        if (named := _candidate_at(place)) is not None and place.count("/") == 2:  # noqa: PLR2004 - tries, map, name
            self._under_way.pop(named[1], None)
        if state == "done":
            self._done[place] = value_in(event)
            self._failed.pop(place, None)
        elif state == "failed":
            self._failed[place] = failure_in(event)

    # --- the view as plain data

    def plain(self, run: RunRow, state: str) -> dict[str, object]:
        """Return the candidates in the order of the result; at most the first 200."""
        facts = manifest_of(run, "candidates")
        spec = mapping(facts.get("spec"))
        file, _, name = str(facts.get("target") or spec.get("target") or "").partition("::")
        original = facts.get("original")
        if self._tried is None:
            self._tried = (
                self._replay(Target(file, name), original) if isinstance(original, str) else []
            )
        tried = self._tried
        winner = best_of(tried)
        shown = tried[:_MAX_CANDIDATES]
        if winner is not None and winner not in shown:
            shown = [*shown[:-1], winner]
        seen = mapping(mapping(self._done.get(f"{_TRIES_STEP}/original")).get("watched"))
        room = [_ALL_PATCHES_CHARACTERS]
        return {
            "target": short(f"{file}::{name}", _TEXT_CHARACTERS),
            "state": state,
            "threshold": number(spec.get("threshold")),
            "known": isinstance(original, str),
            "winner": winner and winner.name,
            "noise_floor": number(largest_noise_floor(tried)),
            "baseline": {
                "tests": seen.get("tests"),
                "passed": seen.get("passed"),
                "calls": len(listed(seen.get("invocations"))),
            }
            if seen
            else None,
            "confinement": [
                short(one, _TEXT_CHARACTERS) for one in listed(seen.get("confinement"))[:40]
            ],
            "candidates": [self._row(one, str(original), file, room) for one in shown],
            "trouble": [
                short(f"{place}: {failure}", _TEXT_CHARACTERS)
                for place, failure in list(self._failed.items())[:10]
            ],
            "cut": f"shown: {_MAX_CANDIDATES:,} of {many(len(tried), 'candidate')}"
            if len(tried) > _MAX_CANDIDATES
            else None,
        }

    def _replay(self, target: Target, original: str) -> list[Tried]:
        """Derive the candidates from the recorded results, in the order in which the job does."""
        if self._initial_registry is None:
            self._initial_registry = Registry(target, original)
            found = map(_read_proposal, map(mapping, listed(self._done.get("sources"))))
            self._initial_registry.enter(filter(None, found))
        registry = deepcopy(self._initial_registry)
        self._replay_round(registry, "")
        texts = map(_read_written, listed(self._done.get(f"{_TRIES_STEP}/refine")))
        registry.enter(
            child_of(one, text, "refinement")
            for one, text in zip(registry.faster, texts, strict=False)
            if has_text(text)
        )
        self._replay_round(registry, "-refined")
        replies = [
            (one, _read_written(self._done.get(f"{_TRIES_STEP}/adapt-{one.name}")))
            for one in registry.faster
            if one.origin == "refinement"
        ]
        registry.enter(child_of(one, text, "adaptive") for one, text in replies if has_text(text))
        self._replay_round(registry, "-adapted")
        return list(registry.tried.values())

    def _replay_round(self, registry: Registry, ending: str) -> None:
        for name in list(registry.tried):
            place = f"{_TRIES_STEP}/candidate{ending}/{escape(name)}"
            if place in self._done and (
                links := [_read_link(mapping(one)) for one in listed(self._done[place])]
            ):
                registry.settle(name, links)
            elif place in self._failed:
                registry.settle(name, [Link("", Checked("error", self._failed[place]))])
        for name in list(registry.tried):
            place = f"{_TRIES_STEP}/measure{ending}/{escape(name)}"
            if place in self._done:
                registry.time(name, _read_timed(mapping(self._done[place])))
            elif place in self._failed:
                registry.time(name, Timed("error", self._failed[place]))
        registry.copy_to_duplicates()

    def _row(self, one: Tried, original: str, file: str, room: list[int]) -> dict[str, object]:
        timed, checked = one.timed, one.checked
        at = self._under_way.get(one.name)
        key = (one.text, one.files)
        if key not in self._patches:
            whole = change_patch(original, one.text, file, one.files) if one.size else one.text
            self._patches[key] = whole
        patch = self._patches[key]
        cut = short(patch, min(_PATCH_CHARACTERS, max(0, room[0])) or 1)
        room[0] -= len(cut)
        places = [f"{_TRIES_STEP}/{held}/{escape(one.name)}" for held in ("measure", "candidate")]
        return {
            "name": short(one.name, _TEXT_CHARACTERS),
            "origin": one.origin,
            "parent": one.parent,
            "of": one.of,
            "verdict": at or one.verdict,
            "under_way": at is not None,
            "reason": short(one.reason, _TEXT_CHARACTERS),
            "ratio": number(timed and timed.ratio),
            "low": number(timed and timed.low),
            "high": number(timed and timed.high),
            "noise": number(timed and timed.noise_floor),
            "memory": number(timed and timed.memory_ratio),
            "blocks": timed.blocks if timed else None,
            "size": one.size,
            "files": [short(change.path, _TEXT_CHARACTERS) for change in one.files],
            "patch": cut,
            "patch_cut": len(patch) - len(cut) if len(cut) < len(patch) else 0,
            "notes": [
                short(note, _TEXT_CHARACTERS) for note in (*timed.regressions, *timed.notes)[:8]
            ]
            if timed
            else [],
            "diffs": [
                {
                    "call": short(diff.invocation, _TEXT_CHARACTERS),
                    "where": short(f"{diff.part}{diff.path[1:]}", _TEXT_CHARACTERS),
                    "original": short(diff.original, _TEXT_CHARACTERS),
                    "candidate": short(diff.candidate, _TEXT_CHARACTERS),
                    "reason": short(diff.reason, _TEXT_CHARACTERS),
                }
                for diff in (
                    sorted(checked.diffs, key=lambda diff: diff.part == "test")[:_MAX_DIFFS]
                    if checked
                    else ()
                )
            ],
            "more_diffs": max(0, len(checked.diffs) - _MAX_DIFFS) if checked else 0,
            "path": next((self._paths[place] for place in places if place in self._paths), None),
        }


class CandidatesLive(LiveText):
    """The live line: which candidates are checked, which one is measured, how many are done."""

    interval = 0.0

    def __init__(self) -> None:
        self._checked: list[str] = []
        self._measured = ""
        self._ended: set[str] = set()
        self._agents = LastSteps()

    def add(self, event: Event) -> bool:
        """Add an event; the start or end of a check or a measurement changes the line.

        And each step of an agent.
        """
        parts = event.path.split("/")
        if event.kind == AGENT_STEP:
            self._agents.add(event)
            return True
        if event.kind == ITEM_SETTLED:
            self._agents.end(event.path)
        if event.kind not in (ITEM_STARTED, ITEM_SETTLED) or len(parts) < 4:  # noqa: PLR2004 - run, tries, map, name
            return False
        began, kind, name = event.kind == ITEM_STARTED, parts[2], parts[3]
        if kind.startswith("measure"):
            self._measured = name if began else ""
            self._ended |= set() if began else {name}
        elif kind.startswith("candidate") and any(
            one.startswith("behaviour") for one in parts[4:5]
        ):
            if began:
                self._checked.append(name)
            elif name in self._checked:
                self._checked.remove(name)
                self._ended.add(name)
        return True

    def parts(self) -> Iterator[tuple[str, str]]:
        """The parts of the line, each with its style."""
        if self._measured:
            yield f"measuring {self._measured}, alone", ""
            return
        yield "behaviour", ""
        yield from ((f"[{name}]", "") for name in self._checked)
        yield f"{len(self._ended)} checked", ""
        yield self._agents.text(), "dim"


def _candidate_at(place: str) -> tuple[str, str] | None:
    parts = place.split("/")
    if len(parts) < 3 or parts[0] != _TRIES_STEP:  # noqa: PLR2004 - tries, map, name
        return None
    if parts[1].startswith("measure"):
        return "measuring", unescape(parts[2])
    if not parts[1].startswith("candidate"):
        return None
    repairs = any(step.startswith("repair") for step in parts[3:4])
    return "repairing" if repairs else "checking", unescape(parts[2])


# --- the job's records, read from the journal


def _read_proposal(facts: Mapping[str, Any]) -> Proposal | None:
    fits = isinstance(facts.get("name"), str) and isinstance(facts.get("text"), str)
    try:
        return Proposal(**{**facts, "files": _read_files(facts)}) if fits else None
    except TypeError:  # recorded by another version
        return None


def _read_files(facts: Mapping[str, Any]) -> tuple[FileChange, ...]:
    return tuple(FileChange(**mapping(one)) for one in listed(facts.get("files")))


def _read_written(recorded: object) -> str | CandidateSource:
    """What an author has written: text, or a source with several files."""
    if isinstance(recorded, Mapping):
        with contextlib.suppress(TypeError):  # recorded by another version
            return CandidateSource(str(recorded.get("text") or ""), _read_files(recorded))
    return recorded if isinstance(recorded, str) else ""


def _read_link(facts: Mapping[str, Any]) -> Link:
    checked = dict(mapping(facts.get("checked")))
    try:
        diffs = tuple(Diff(**mapping(diff)) for diff in listed(checked.pop("diffs", ())))
        found = Checked(**{**checked, "diffs": diffs})
        return Link(str(facts.get("text")), found, _read_files(facts))
    except TypeError:
        return Link("", Checked("error", "it was recorded by another version of abreast"))


def _read_timed(facts: Mapping[str, Any]) -> Timed:
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
