"""The candidates of a run, in order: which are new, what became of each, which came of which.

Decides, never waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from abreast.jobs.candidates.results import Checked, Origin, Proposal, Timed, Tried, size_of
from abreast.jobs.candidates.source.normal_form import Register
from abreast.jobs.candidates.source.target import CandidateInvalid, Target, candidate_text

_PASSED = "it behaves like the original, and was not measured"


@dataclass(frozen=True, slots=True)
class Link:
    """One text of a line of repairs, and what the behaviour check said of it."""

    text: str
    checked: Checked


class Registry:
    """Every candidate so far.

    A duplicate takes the results of the earlier one, which keeps the shorter source.
    """

    def __init__(self, target: Target, original: str) -> None:
        """Nobody yet."""
        self._target = target
        self._original = original
        self._register = Register(original)
        self.tried: dict[str, Tried] = {}

    def enter(self, proposals: Iterable[Proposal]) -> list[Tried]:
        """Note proposals, in their order; those of them that are to be tried."""
        found: list[Tried] = []
        for proposal in proposals:
            tried = self._entered(proposal)
            self.tried[tried.name] = tried
            if tried.verdict == "undecided":
                found.append(tried)
        return found

    def _entered(self, proposal: Proposal) -> Tried:
        """A proposal as a whole file, and what it is beside those before it.

        Undecided if it is new.
        """
        name = self._unused(proposal.name)
        tried = Tried(
            name, proposal.origin, proposal.parent, "undecided", "it was not tried", proposal.text
        )
        if proposal.fault:
            return replace(tried, verdict=proposal.fault, reason=proposal.reason)
        try:
            text = candidate_text(self._original, self._target, proposal.text)
        except CandidateInvalid as error:
            return replace(tried, verdict="error", reason=str(error))
        tried = replace(tried, text=text, size=size_of(self._original, text))
        standing = self._register.enter(name, text)
        if standing.kind == "original":
            return replace(tried, verdict="duplicate", reason="it is the original")
        if standing.kind == "duplicate":
            return replace(
                tried,
                verdict="duplicate",
                reason=f"it is the same code as {standing.of}",
                of=standing.of,
            )
        return tried

    def _unused(self, name: str) -> str:
        found, number = name, 2
        while found in self.tried:
            found, number = f"{name}-{number}", number + 1
        return found

    def text_of(self, name: str) -> str:
        """The text to try: the shortest of those that are the same code."""
        return self._register.source_of(name)

    def settle(self, name: str, links: list[Link]) -> None:
        """Note a candidate's check, and right after it its repairs, each the child of the one before."""
        text = self.text_of(name)
        tried = replace(self.tried[name], text=text, size=size_of(self._original, text))
        self.tried[name] = _checked(tried, links[0].checked)
        parent = name
        for link in links[1:]:
            parent = self._repaired(parent, link)

    def _repaired(self, parent: str, link: Link) -> str:
        """Note a repair; only now can it turn out to be a duplicate of another candidate's repair."""
        tried = self._entered(Proposal(f"{parent}-repaired", link.text, "repair", parent))
        if tried.verdict == "undecided":
            tried = _checked(tried, link.checked)
        order = list(self.tried.items())
        at = list(self.tried).index(parent) + 1
        self.tried = dict([*order[:at], (tried.name, tried), *order[at:]])
        return tried.name

    def time(self, name: str, timed: Timed) -> None:
        """Note what measuring said."""
        self.tried[name] = replace(
            self.tried[name], timed=timed, verdict=timed.verdict, reason=timed.reason
        )

    @property
    def passed(self) -> list[Tried]:
        """Those that behave and were not measured."""
        return [
            one
            for one in self.tried.values()
            if one.verdict == "undecided"
            and one.timed is None
            and one.checked
            and one.checked.verdict == "same"
        ]

    @property
    def faster(self) -> list[Tried]:
        """Those that are faster."""
        return [one for one in self.tried.values() if one.verdict == "faster"]

    def ancestry(self, one: Tried) -> list[Tried]:
        """A candidate and all that it came from, the oldest first."""
        found = [one]
        while found[0].parent in self.tried:
            found.insert(0, self.tried[found[0].parent or ""])
        return found

    def copy_to_duplicates(self) -> None:
        """A duplicate has the results of the earlier one; its verdict says that it is one."""
        for name, one in self.tried.items():
            if one.of is not None:
                first = self.tried[one.of]
                self.tried[name] = replace(one, checked=first.checked, timed=first.timed)


def _checked(tried: Tried, checked: Checked) -> Tried:
    if checked.verdict == "same":
        return replace(tried, checked=checked, reason=_PASSED)
    return replace(tried, checked=checked, verdict=checked.verdict, reason=checked.reason)


def child_of(parent: Tried, text: str, origin: Origin) -> Proposal:
    """What came of a candidate, named for it."""
    word = {"refinement": "refined", "adaptive": "adapted"}[origin]
    return Proposal(f"{parent.name}-{word}", text, origin, parent.name)
