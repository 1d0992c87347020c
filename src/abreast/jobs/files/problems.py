"""Collects the problems and warnings of a file, so that all are reported at once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Final

from abreast.core.errors import Problem, WorkflowInvalid

HINTS: Final = 50
"""How many problems of a file get a search for a similar word: each search takes milliseconds."""
_MAX_CANDIDATES: Final = 200  # known words that are compared
_MAX_WORD_LENGTH: Final = 60  # characters; a longer word is not searched for
_MAX_LISTED: Final = 20  # words that a message lists
_MAX_SHOWN_LENGTH: Final = 60  # characters of a value in a message


@dataclass(slots=True)
class Problems:
    """The problems and warnings of one file."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)
    hints: int = HINTS
    misspelt: set[tuple[int, str]] = field(default_factory=set)
    """The keys that are reported, by line: what is missing because of one is not reported too."""

    def problem(self, line: int, text: str) -> None:
        """Add a problem, which makes the file invalid."""
        self.problems.append(Problem(self.file, line, _one_line(text)))

    def warn(self, line: int, text: str) -> None:
        """Add a warning of something that is probably not meant."""
        self.warnings.append((line, _one_line(text)))

    def instead(self, word: str, words: Iterable[str]) -> str:
        """Return what to write instead of an unknown word, as the end of a sentence.

        It is a similar word if there is one, else all known words.
        """
        known = list(islice(words, _MAX_CANDIDATES))
        self.hints -= 1
        searched = self.hints >= 0 and len(word) <= _MAX_WORD_LENGTH
        close = get_close_matches(word, known, 1) if searched else []
        if close:
            return f"did you mean {close[0]}?"
        if not known:
            return "there is none at all"
        more = f" and {len(known) - _MAX_LISTED} more" if len(known) > _MAX_LISTED else ""
        there = "is" if len(known) == 1 else "are"
        return f"there {there} {', '.join(known[:_MAX_LISTED])}{more}"

    def settled(self) -> tuple[tuple[int, str], ...]:
        """Return the warnings, by line; raise WorkflowInvalid if there are problems."""
        if self.problems:
            raise WorkflowInvalid.of(self.problems)
        return tuple(sorted(set(self.warnings)))


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def shown(given: object) -> str:
    """Return a value as a message shows it: its repr, cut to 60 characters."""
    try:
        text = repr(given)
    except ValueError:  # a whole number of more digits than Python writes
        return "a number of very many digits"
    return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[: _MAX_SHOWN_LENGTH - 3]}..."
