"""Estimates the tokens of a call before it is made, from the calls before it."""

from bisect import bisect_left, insort
from collections import deque
from typing import Final, NamedTuple

from abreast.models.port import Reply, Request

# Characters per token before the first reply. Most texts have more, so this reserves too much.
_INITIAL_CHARACTERS_PER_TOKEN: Final = 3.0
_INITIAL_OUTPUT_TOKENS: Final = 1024  # before the first reply, if the request has no max_tokens
_LEARNING_RATE: Final = 0.1  # weight of a new observation
_RECENT_REPLIES: Final = 64  # replies whose lengths are kept
_QUANTILE: Final = 0.95  # of recent output lengths, which is reserved


class TokenEstimate(NamedTuple):
    """Estimated tokens of a call."""

    input_tokens: int
    output_tokens: int


class TokenEstimates:
    """Observations of one model: characters per token, and the lengths of recent replies."""

    __slots__ = ("_characters", "_known", "_ordered", "_outputs")

    def __init__(self) -> None:
        self._characters = _INITIAL_CHARACTERS_PER_TOKEN
        self._known = False
        self._outputs: deque[int] = deque()
        # The same, sorted: sorting them for each call cost more than all the rest.
        self._ordered: list[int] = []

    def of(self, request: Request) -> TokenEstimate:
        """The tokens to reserve for a request; never more output than it allows."""
        most = request.max_tokens
        if most is not None and request.thinking_tokens is not None:
            most += request.thinking_tokens
        ordered = self._ordered
        if ordered:
            output = ordered[min(len(ordered) - 1, int(len(ordered) * _QUANTILE))]
            output = output if most is None else min(output, most)
        else:
            output = _INITIAL_OUTPUT_TOKENS if most is None else most
        return TokenEstimate(int(length(request) / self._characters) + 8, output)

    def learn(self, request: Request, reply: Reply) -> None:
        """Update the observations with the tokens that a call used."""
        used = reply.usage
        if used.estimate or not used.input_tokens:
            return
        self._remember(used.output_tokens)
        seen = max(1.0, length(request) / used.input_tokens)
        self._characters += (seen - self._characters) * (_LEARNING_RATE if self._known else 1.0)
        self._known = True

    def _remember(self, output: int) -> None:
        outputs, ordered = self._outputs, self._ordered
        if len(outputs) == _RECENT_REPLIES:
            del ordered[bisect_left(ordered, outputs.popleft())]
        outputs.append(output)
        insort(ordered, output)


def length(request: Request) -> int:
    """The characters of a request that its provider counts."""
    return len(request.system or "") + sum(len(each.content) for each in request.messages)


def tokens_of(text: str) -> int:
    """Estimates the tokens of a text: one for four characters.

    >>> tokens_of(""), tokens_of("words")
    (0, 2)
    """
    return (len(text) + 3) // 4
