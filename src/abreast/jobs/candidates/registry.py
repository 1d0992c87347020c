"""The registry of a run's candidates: which are new, their results, and their ancestors.

It is pure bookkeeping and never waits.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from abreast.jobs.candidates.results import Checked, Origin, Proposal, Timed, Tried, change_size
from abreast.jobs.candidates.source.changes import CandidateSource, FileChange, as_source
from abreast.jobs.candidates.source.normal_form import DuplicateFinder
from abreast.jobs.candidates.source.target import CandidateInvalid, Target, candidate_text


@dataclass(frozen=True, slots=True)
class Link:
    """One text in a chain of repairs, with its other files, and its behaviour check."""

    text: str
    checked: Checked
    files: tuple[FileChange, ...] = ()


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
            name,
            proposal.origin,
            proposal.parent,
            "undecided",
            "it was not tried",
            proposal.text,
            files=proposal.files,
        )
        if proposal.fault:
            return replace(tried, verdict=proposal.fault, reason=proposal.reason)
        try:
            text = candidate_text(self._original, self._target, proposal.text, whole=proposal.whole)
        except CandidateInvalid as error:
            return replace(tried, verdict="error", reason=str(error))
        tried = replace(tried, text=text, size=change_size(self._original, text, proposal.files))
        standing = self._register.enter(name, text, proposal.files)
        if standing.kind == "new":
            return tried
        same = f"it is the same code as {standing.of}" if standing.of else "it is the original"
        return replace(tried, verdict="duplicate", reason=same, of=standing.of)

    def _unique_name(self, name: str) -> str:
        found, number = name, 2
        while found in self.tried:
            found, number = f"{name}-{number}", number + 1
        return found

    def source_of(self, name: str) -> CandidateSource:
        """Return the source to evaluate: the shortest of those that are the same code."""
        return self._register.source_of(name)

    def settle(self, name: str, links: list[Link]) -> None:
        """Record a candidate's check and after it its repairs, each the child of the previous."""
        text, files = (source := self.source_of(name)).text, source.files
        size = change_size(self._original, text, files)
        tried = replace(self.tried[name], text=text, size=size, files=files)
        self.tried[name] = self._with_check(tried, links[0].checked)
        parent = name
        for link in links[1:]:
            parent = self._add_repair(parent, link)

    def _add_repair(self, parent: str, link: Link) -> str:
        """Record a repair. It may turn out here to be a duplicate of another candidate's repair."""
        name, files = f"{parent}-repaired", link.files
        tried = self._classify(
            Proposal(name, link.text, "repair", parent, files=files, whole=bool(files))
        )
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


def child_of(parent: Tried, given: str | CandidateSource, origin: Origin) -> Proposal:
    """Return a proposal that was made from another candidate and is named after it."""
    word = {"refinement": "refined", "adaptive": "adapted"}[origin]
    source = next_source(given, parent.files)
    name = f"{parent.name}-{word}"
    whole = is_whole(given)
    return Proposal(name, source.text, origin, parent.name, files=source.files, whole=whole)


def next_source(given: object, files: tuple[FileChange, ...]) -> CandidateSource:
    """Return an author's answer as a source.

    Text alone is about the target's file, and the other files of the parent stay. Raises TypeError.
    """
    return CandidateSource(given, files) if isinstance(given, str) else as_source(given)


def is_whole(given: object) -> bool:
    """Whether an author's answer is the files of a tree, not only a function."""
    return isinstance(given, CandidateSource) and bool(given.files)


def has_text(given: object) -> bool:
    """Whether an author's answer is a candidate at all."""
    return bool(as_source(given).text.strip())
