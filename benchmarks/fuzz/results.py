"""What became of the tries with one kind of input."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

MOST_EXAMPLES: Final = 10
_SHOWN: Final = 700  # characters of an input
SLOW: Final = 10.0  # seconds of CPU after which a try counts as hung


@dataclass(slots=True)
class Fuzzed:
    """How many tries ended how, and the inputs of those that must not be."""

    tries: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """Exit codes, the names of errors, and the like."""
    broken: int = 0
    hung: int = 0
    examples: list[str] = field(default_factory=list)

    def end(self, how: object) -> None:
        """Count a try that ended as it may."""
        self.tries += 1
        self.ends[str(how)] += 1

    def break_off(self, what: BaseException | str, given: object) -> None:
        """Count a try that raised what nothing may raise, or that broke a promise."""
        self.tries += 1
        self.broken += 1
        if isinstance(what, BaseException):
            lines = traceback.format_exception(what)[-3:]
            what = "".join(lines)[-900:]
        self._keep(what, given)

    def hang(self, given: object) -> None:
        """Count a try that did not end."""
        self.tries += 1
        self.hung += 1
        self._keep("hung", given)

    def _keep(self, what: str, given: object) -> None:
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(f"{what}\n{str(given)[:_SHOWN]}")

    def __str__(self) -> str:
        ends = ", ".join(f"{count} x {how}" for how, count in self.ends.most_common(8))
        return f"{self.tries} tries: {self.broken} broken, {self.hung} hung  {ends}"
