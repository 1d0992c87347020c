"""The registry of a run's candidates: which are new, their results, and their ancestors.

It is pure bookkeeping and never waits.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from abreast.jobs.candidates.results import Checked, Origin, Proposal, Timed, Tried, size_of
from abreast.jobs.candidates.source.normal_form import DuplicateFinder
from abreast.jobs.candidates.source.target import CandidateInvalid, Target, candidate_text


@dataclass(frozen=True, slots=True)
class Link:
    """One text in a chain of repairs, and its behaviour check."""

    text: str
    checked: Checked


class Registry:
    """Every candidate so far.

    A duplicate takes the results of the earlier one. Of the two sources the shorter one is kept.
    Without `timing`, a candidate that behaves like the original is the `same`, and its reason says
    what that stands on.
    """

    def __init__(self, target: Target, original: str, *, timing: bool = True) -> None:
        self._target, self._original, self._timing = target, original, timing
        self._register = DuplicateFinder(original)
        self.tried: dict[str, Tried] = {}

    def enter(self, proposals: Iterable[Proposal]) -> list[Tried]:
        """Add proposals in their order; return those that are to be evaluated."""
        found: list[Tried] = []
        for proposal in proposals:
            tried = self._classify(proposal)
            self.tried[tried.name] = tried
            if tried.verdict == "undecided":
                found.append(tried)
        return found

    def _classify(self, proposal: Proposal) -> Tried:
        """Complete a proposal to a whole file and compare it with earlier ones.

        The verdict is `undecided` if it is new.
        """
        name = self._unique_name(proposal.name)
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
        if standing.kind == "new":
            return tried
        same = f"it is the same code as {standing.of}" if standing.of else "it is the original"
        return replace(tried, verdict="duplicate", reason=same, of=standing.of)

    def _unique_name(self, name: str) -> str:
        found, number = name, 2
        while found in self.tried:
            found, number = f"{name}-{number}", number + 1
        return found

    def text_of(self, name: str) -> str:
        """Return the text to evaluate: the shortest of those that are the same code."""
        return self._register.source_of(name)

    def settle(self, name: str, links: list[Link]) -> None:
        """Record a candidate's check and after it its repairs, each the child of the previous."""
        text = self.text_of(name)
        tried = replace(self.tried[name], text=text, size=size_of(self._original, text))
        self.tried[name] = self._with_check(tried, links[0].checked)
        parent = name
        for link in links[1:]:
            parent = self._add_repair(parent, link)

    def _add_repair(self, parent: str, link: Link) -> str:
        """Record a repair. It may turn out here to be a duplicate of another candidate's repair."""
        tried = self._classify(Proposal(f"{parent}-repaired", link.text, "repair", parent))
        if tried.verdict == "undecided":
            tried = self._with_check(tried, link.checked)
        order, at = list(self.tried.items()), list(self.tried).index(parent) + 1
        self.tried = dict([*order[:at], (tried.name, tried), *order[at:]])
        return tried.name

    def _with_check(self, tried: Tried, checked: Checked) -> Tried:
        if checked.verdict != "same":
            return replace(tried, checked=checked, verdict=checked.verdict, reason=checked.reason)
        if not self._timing:
            reason = f"{checked.evidence}; its speed was not measured"
            return replace(tried, checked=checked, verdict="same", reason=reason)
        return replace(
            tried, checked=checked, reason="it behaves like the original, and was not measured"
        )

    def time(self, name: str, timed: Timed) -> None:
        """Record a measurement."""
        self.tried[name] = replace(
            self.tried[name], timed=timed, verdict=timed.verdict, reason=timed.reason
        )

    @property
    def passed(self) -> list[Tried]:
        """The candidates that behave like the original and are not measured yet."""
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
        """The candidates that are faster."""
        return [one for one in self.tried.values() if one.verdict == "faster"]

    def ancestry(self, one: Tried) -> list[Tried]:
        """Return a candidate's ancestors and the candidate, oldest first."""
        found = [one]
        while found[0].parent in self.tried:
            found.insert(0, self.tried[found[0].parent or ""])
        return found

    def copy_to_duplicates(self) -> None:
        """Give each duplicate the results of the earlier candidate; its verdict stays."""
        for name, one in self.tried.items():
            if one.of is not None:
                first = self.tried[one.of]
                self.tried[name] = replace(one, checked=first.checked, timed=first.timed)


def child_of(parent: Tried, text: str, origin: Origin) -> Proposal:
    """Return a proposal that was made from another candidate and is named after it."""
    word = {"refinement": "refined", "adaptive": "adapted"}[origin]
    return Proposal(f"{parent.name}-{word}", text, origin, parent.name)
