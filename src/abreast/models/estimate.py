"""How many tokens a call will use, before it is made: learned from the calls before it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Final, NamedTuple

from abreast.models.port import Reply, Request

_CHARACTERS: Final = (
    3.0  # per token, until something is known; most texts have more, so this reserves too much
)
_OUTPUT: Final = 1024  # tokens, until something is known and none are given
_LEARN: Final = 0.1
_RECENT: Final = 64
_QUANTILE: Final = 0.95


class TokenEstimate(NamedTuple):
    """Tokens of a call to come."""

    input_tokens: int
    output_tokens: int


class TokenEstimates:
    """One model's habits: characters per token, and how long its replies have been of late."""

    __slots__ = ("_characters", "_known", "_ordered", "_outputs")

    def __init__(self) -> None:
        """Nothing is known."""
        self._characters = _CHARACTERS
        self._known = False
        self._outputs: deque[int] = deque()
        self._ordered: list[
            int
        ] = []  # the same, by size: sorting them for each call cost more than the rest

    def of(self, request: Request) -> TokenEstimate:
        """What to reserve for a request; never more output than it allows."""
        most = request.max_tokens
        ordered = self._ordered
        if ordered:
            output = ordered[min(len(ordered) - 1, int(len(ordered) * _QUANTILE))]
            output = output if most is None else min(output, most)
        else:
            output = _OUTPUT if most is None else most
        return TokenEstimate(int(length(request) / self._characters) + 8, output)

    def learn(self, request: Request, reply: Reply) -> None:
        """See what a call really used."""
        used = reply.usage
        if used.estimate or not used.input_tokens:
            return
        self._remember(used.output_tokens)
        seen = max(1.0, length(request) / used.input_tokens)
        self._characters += (seen - self._characters) * (_LEARN if self._known else 1.0)
        self._known = True

    def _remember(self, output: int) -> None:
        outputs, ordered = self._outputs, self._ordered
        if len(outputs) == _RECENT:
            del ordered[bisect_left(ordered, outputs.popleft())]
        outputs.append(output)
        insort(ordered, output)


def length(request: Request) -> int:
    """The characters of a request that its provider counts."""
    total = len(request.system or "")
    for message in request.messages:
        total += len(message.content)
    return total
