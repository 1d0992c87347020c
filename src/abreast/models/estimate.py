"""The tokens of a call before it is made: as expected from the calls before it, and at most.

Rates are paced by what is expected. Budgets reserve the most that a call can take.
"""

import json
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from abreast.models.media import MediaFile
from abreast.models.port import Reply, Request

# Characters per token before the first reply. Most texts have more, so this reserves too much.
_INITIAL_CHARACTERS_PER_TOKEN: Final = 3.0
_INITIAL_OUTPUT_TOKENS: Final = 1024  # before the first reply, if the request has no max_tokens
_LEARNING_RATE: Final = 0.1  # weight of a new observation
_RECENT_REPLIES: Final = 64  # replies whose lengths are kept
_QUANTILE: Final = 0.95  # of recent output lengths, which is reserved

# The most tokens of one image by default settings, as far as documented (Gemini's tiles assumed):
# OpenAI 10,000 patches of 32 pixels; Anthropic 4,784 patches of 28 pixels; Gemini 16 tiles of 258.
_IMAGE_TOKENS: Final[Mapping[str, int]] = {"openai": 10_000, "anthropic": 4_784, "gemini": 4_128}
# The same for one page of a PDF file, which is our assumption: for OpenAI and Anthropic the text of
# a page (up to 3,000 tokens) and its image, for Gemini an image in its highest resolution.
_PAGE_TOKENS: Final[Mapping[str, int]] = {"openai": 5_500, "anthropic": 7_784, "gemini": 1_120}
REPLY_CAP: Final = 4096
"""The `max_tokens` of a request that has none, if a budget limits tokens or money."""
UNBOUNDED_REPLY: Final = 131_072
"""The most tokens of a reply without a bound: the longest that providers document."""
NO_BOUND: Final = "estimated, without retries; --budget sets a bound"
"""What dry runs say of their tokens and costs."""
# What providers add to the bytes of a request, in tokens: to each, to each turn, and to one with
# tools or a schema (Anthropic documents up to 530 for the prompt that explains tools).
_REQUEST_OVERHEAD: Final = 32
_TURN_OVERHEAD: Final = 16
_TOOLS_OVERHEAD: Final = 1024
_REPLY_CAPS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class TokenEstimate(NamedTuple):
    """Estimated tokens of a call."""

    input_tokens: int
    output_tokens: int


class TokenEstimates:
    """Observations of one model: characters per token, and the lengths of recent replies.

    `family` is its provider, which decides what images and PDF files count.
    """

    __slots__ = (
        "_characters",
        "_family",
        "_known",
        "_media_part",
        "_ordered",
        "_outputs",
        "has_reasoned",
    )

    def __init__(self, family: str = "") -> None:
        self._family = family
        # What images and PDF files took, as a part of the most that they may.
        self._media_part = 1.0
        self._characters = _INITIAL_CHARACTERS_PER_TOKEN
        self._known = False
        self.has_reasoned = False  # whether a reply had tokens that no text shows
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
        media = media_tokens_in(request, self._family) * self._media_part
        return TokenEstimate(int(length(request) / self._characters + media) + 8, output)

    def learn(self, request: Request, reply: Reply) -> None:
        """Update the observations with the tokens that a call used."""
        used = reply.usage
        if used.estimate or not used.input_tokens:
            return
        self._remember(used.output_tokens)
        self.has_reasoned = self.has_reasoned or used.reasoning_tokens > 0
        if media := media_tokens_in(request, self._family):
            part = max(0.0, used.input_tokens - length(request) / self._characters) / media
            self._media_part += (part - self._media_part) * _LEARNING_RATE
            return
        seen = max(1.0, length(request) / used.input_tokens)
        self._characters += (seen - self._characters) * (_LEARNING_RATE if self._known else 1.0)
        self._known = True

    def _remember(self, output: int) -> None:
        outputs, ordered = self._outputs, self._ordered
        if len(outputs) == _RECENT_REPLIES:
            del ordered[bisect_left(ordered, outputs.popleft())]
        outputs.append(output)
        insort(ordered, output)


def media_tokens(file: MediaFile, family: str = "") -> int:
    """The most tokens that an image or a PDF file takes, for models of a provider.

    For a provider without documented numbers, the largest of the others. (gpt-4o-mini counts up to
    48,169 for an image, at a thirtieth of the price.)
    """
    each = _PAGE_TOKENS if file.is_pdf else _IMAGE_TOKENS
    return file.pages * each.get(family, max(each.values()))


def media_tokens_in(request: Request, family: str = "") -> int:
    """The most tokens that all files of a request take."""
    tokens = 0
    for turn in request.messages:
        for file in turn.files:
            tokens += media_tokens(file, family)
    return tokens


def most_tokens(request: Request, family: str = "") -> TokenEstimate:
    """The most tokens that a call can take.

    A token of text is at least one byte of it, so a text has no more tokens than bytes. The reply
    has no more than the request allows, thinking included; `REPLY_CAP` if it says nothing.

    >>> most_tokens(Request((), system="as brief as can be", max_tokens=100))
    TokenEstimate(input_tokens=50, output_tokens=100)
    """
    extra = request.extra
    given = [size for name in _REPLY_CAPS if type(size := extra.get(name)) is int]
    output = max([request.max_tokens or REPLY_CAP, *given]) + (request.thinking_tokens or 0)
    replies = extra.get("n")
    size = _REQUEST_OVERHEAD + bytes_of(request.system or "") + media_tokens_in(request, family)
    for turn in request.messages:
        size += _TURN_OVERHEAD + bytes_of(turn.content)
        for call in turn.tool_calls:
            size += _TURN_OVERHEAD + bytes_of(call.id + call.name + call.arguments)
        if turn.kept:
            size += len(json.dumps([dict(part) for part in turn.kept], default=dict))
    if request.tools or request.schema is not None:
        described = [dict(each) for each in request.tools]
        size += _TOOLS_OVERHEAD + len(json.dumps([described, request.schema], default=dict))
    if extra:
        size += len(json.dumps(dict(extra), default=dict))
    return TokenEstimate(size, output * (replies if type(replies) is int and replies > 1 else 1))


def bytes_of(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def length(request: Request) -> int:
    """The characters of a request that its provider counts, without its files."""
    size = len(request.system or "")
    for turn in request.messages:
        size += len(turn.content)
    return size


def tokens_of(text: str) -> int:
    """Estimates the tokens of a text: one for four characters.

    >>> tokens_of(""), tokens_of("words")
    (0, 2)
    """
    return (len(text) + 3) // 4
