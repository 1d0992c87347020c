"""What is wrong with a workflow file, and what may not be meant in it: collected, to be said all at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Final

from abreast.core.errors import Problem, WorkflowInvalid

HINTS: Final = 50
"""How often a load looks for a word that may have been meant: a search takes milliseconds, and problems may be many."""
_WORDS: Final = 200
_LONGEST: Final = 60


@dataclass(slots=True)
class Problems:
    """The problems and warnings of one file."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)
    hints: int = HINTS

    def problem(self, line: int, text: str) -> None:
        """Something that must be put right."""
        self.problems.append(Problem(self.file, line, _one_line(text)))

    def warn(self, line: int, text: str) -> None:
        """Something that may not be meant."""
        self.warnings.append((line, _one_line(text)))

    def instead(self, word: str, words: Iterable[str]) -> str:
        """What to write instead of an unknown word, as the end of a sentence: the close one, or all that there are."""
        known = list(islice(words, _WORDS))
        self.hints -= 1
        close = (
            get_close_matches(word, known, 1) if self.hints >= 0 and len(word) <= _LONGEST else []
        )
        if close:
            return f"did you mean {close[0]}?"
        return (
            f"there {'is' if len(known) == 1 else 'are'} {_listed(known)}"
            if known
            else "there is none at all"
        )

    def settled(self) -> tuple[tuple[int, str], ...]:
        """The warnings, by line; WorkflowInvalid if there are problems."""
        if self.problems:
            raise WorkflowInvalid.of(self.problems)
        return tuple(sorted(set(self.warnings)))


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _listed(words: list[str]) -> str:
    most = 20
    return (
        ", ".join(words)
        if len(words) <= most
        else f"{', '.join(words[:most])} and {len(words) - most} more"
    )


def shown(given: object) -> str:
    """A value in a sentence: as Python writes it, cut short."""
    try:
        written = repr(given)
    except ValueError:  # a whole number of more digits than Python writes
        return "a number of very many digits"
    most = 60
    return written if len(written) <= most else f"{written[: most - 3]}..."
