"""A reply as it was read from a provider's document, and whether it is sound."""

import json
from dataclasses import dataclass
from typing import Final

from abreast.models.port import Finish, ToolCall
from abreast.models.providers.thinking import Kept

MALFORMED: Final = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What reading a document raises that has not the shape of a reply."""
_MAX_COUNT: Final = 1 << 53  # JSON readers agree on integers up to here


@dataclass(slots=True)
class ReplyDraft:
    """A reply as it was read, independent of the provider.

    Tokens are None if the provider did not send them.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Finish = "stop"
    refusal: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    model: str = ""
    id: str = ""
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    kept: Kept = ()


def checked(draft: ReplyDraft) -> ReplyDraft:
    """The draft with text wherever there must be text; raises TypeError if that can't be.

    Servers send numbers as ids, and the arguments of a call as an object. A name of the model, or
    an id of the reply, that is no text is left out: the reply is paid for and can be used.
    """
    if not isinstance(draft.text, str):
        raise TypeError("the text is no text")
    if not isinstance(draft.refusal, str):
        draft.refusal = json.dumps(draft.refusal)
    draft.model, draft.id = _text_or_nothing(draft.model), _text_or_nothing(draft.id)
    draft.text = replace_surrogates(draft.text)
    if draft.tool_calls:
        draft.tool_calls = tuple(map(_checked_call, draft.tool_calls))
    return draft


def count(value: object) -> int | None:
    """A number of tokens as a provider sends it; None if it is no such number."""
    return value if type(value) is int and 0 <= value < _MAX_COUNT else None


def replace_surrogates(text: str) -> str:
    """A text that can be stored: surrogate pairs are joined, lone surrogates replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _text_or_nothing(value: object) -> str:
    return replace_surrogates(value) if isinstance(value, str) else ""


def _checked_call(call: ToolCall) -> ToolCall:
    given: tuple[object, ...] = (call.id, call.name, call.arguments)
    number, name, arguments = given
    texts = (
        str(number) if type(number) is int else number,
        name,
        json.dumps(arguments) if isinstance(arguments, dict) else arguments,
    )
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a tool call is of texts")
    return ToolCall(*(replace_surrogates(str(text)) for text in texts))
