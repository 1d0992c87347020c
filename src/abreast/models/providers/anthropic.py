"""Anthropic's messages API."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

from abreast.models.chat_form import present, with_extra
from abreast.models.http.client import HttpClient, HttpOptions
from abreast.models.lanes import LaneSettings, Structured
from abreast.models.media import MediaFile
from abreast.models.port import ANY_TOOL, Finish, Message, Request, ToolCall
from abreast.models.providers.accepted_form import AcceptedForm
from abreast.models.providers.provider import (
    ANSWER_TOOL,
    Document,
    EventFold,
    Provider,
    answer_tool,
    arguments_of,
    schema_in_words,
    system_texts,
    take_answer,
    ways_from,
)
from abreast.models.providers.reply_draft import ReplyDraft, count
from abreast.models.providers.thinking import EFFORT_TOKENS, Kept, kept_of, turn_parts
from abreast.models.schema import boxed, strict, without_bounds

_VERSION = "2023-06-01"
_MIN_CACHED = 4096  # characters that requests share; about 1,024 tokens, the least that is cached
_FINISH: dict[str | None, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refused",
}
_FAMILY = "anthropic"  # whose kept blocks are sent back
_THINKING = ("thinking", "redacted_thinking")
# Models before 4.6, which think by a budget of tokens; later ones by an effort.
_TAKES_BUDGET = re.compile(
    r"claude-(instant|2|3|(opus|sonnet|haiku)-4(-[0-5])?(-\d{8}|-latest|@|$))"
)
MIN_THINKING_TOKENS = 1024  # the API refuses a smaller budget
_FILTERED = "the provider stopped it"
_write = json.JSONEncoder(ensure_ascii=False).encode


class Anthropic(Provider):
    """A model behind the messages API.

    The API has no seeds. `max_tokens` is the bound for requests without one.

        model = Anthropic("anthropic/claude-sonnet-4-5", key=key)
        reply = await model.complete(Request((Message("user", "Hello"),)))
    """

    def __init__(
        self,
        name: str,
        base_url: str = "https://api.anthropic.com/v1",
        key: str | None = None,
        *,
        max_tokens: int = 4096,
        structured: Structured = "json_schema",
        form: AcceptedForm | None = None,
        lane: LaneSettings | None = None,
        **wire: Unpack[HttpOptions],
    ) -> None:
        http = HttpClient(
            name, {"x-api-key": key} if key else {}, version=("anthropic-version", _VERSION), **wire
        )
        ways = ways_from(structured, ("json_schema", "tool", "none"))
        url = f"{base_url.rstrip('/')}/messages"
        super().__init__(name, http, url, ways=ways, form=form, lane=lane)
        self._default_max_tokens = max_tokens

    def way(self, request: Request) -> Structured | None:
        """How a value is asked for; not every schema has the strict form of the first way."""
        way = super().way(request)
        if way != "json_schema" or request.schema is None or _format(request.schema) is not None:
            return way
        return self.form.first_way(self.ways[1:], request.schema)

    def write(self, request: Request, *, stream: bool) -> Document:
        """The body of a request."""
        tools, choice = [_tool(each) for each in request.tools], request.tool_choice
        config = None
        system, way = system_texts(request), self.way(request)
        if request.schema is not None and way == "json_schema":
            config = {"format": _format(request.schema)}
        elif request.schema is not None and way == "tool":
            if choice is None:
                tools.append(answer_tool(request.schema, "input_schema"))
                choice = ANY_TOOL if request.tools else ANSWER_TOOL
        elif request.schema is not None:
            system.append(schema_in_words(request))
        turns, prompt = _turns(request.messages), "\n\n".join(system)
        is_cached = _is_long(request)
        if is_cached and (shared := request.shared_prefix):
            turns[-1]["content"] = _in_two_parts(turns[-1]["content"], shared)
        thinking = self._thinking(request)
        body = {
            "model": self.model,
            "max_tokens": self._bound(request, thinking),
            "messages": turns,
            **present(
                system=([_cached(_text(prompt))] if is_cached else prompt) if prompt else None,
                temperature=request.temperature,
                stop_sequences=request.stop or None,
                output_config=config,
                tool_choice=None if choice is None else _tool_choice(choice),
                tools=tools or None,
            ),
        }
        return {
            **with_extra(body, thinking),
            **request.extra,
            **({"stream": True} if stream else {}),
        }

    def unsent(self, request: Request) -> tuple[str, ...]:
        """What the API has no value for."""
        effort, tokens = request.reasoning, request.thinking_tokens
        if effort == "none":
            return ()
        if tokens and tokens < MIN_THINKING_TOKENS and _TAKES_BUDGET.search(self.model):
            return (f"thinking_tokens {MIN_THINKING_TOKENS}",)
        low = effort == "minimal" and not _TAKES_BUDGET.search(self.model)
        return ("reasoning low",) if low else ()

    def _thinking(self, request: Request) -> Document:
        """The fields that ask for thinking: a budget for older models, an effort for newer ones."""
        effort, tokens = request.reasoning, request.thinking_tokens
        if effort is None and tokens is None:
            return {}
        if effort == "none" or tokens == 0:
            return {"thinking": {"type": "disabled"}}
        if _TAKES_BUDGET.search(self.model):
            budget = EFFORT_TOKENS[effort] if tokens is None and effort is not None else tokens or 0
            budget = max(budget, MIN_THINKING_TOKENS)
            return {"thinking": {"type": "enabled", "budget_tokens": budget}}
        adaptive: Document = {"thinking": {"type": "adaptive"}}
        if effort is not None:
            adaptive["output_config"] = {"effort": "low" if effort == "minimal" else effort}
        return adaptive

    def _bound(self, request: Request, thinking: Document) -> int:
        """The bound on the output, which includes the thinking."""
        limit, tokens = request.max_tokens, request.thinking_tokens
        room = thinking.get("thinking", {}).get("budget_tokens") or tokens or 0
        if limit is None and tokens is None and request.reasoning is not None:
            room = room or EFFORT_TOKENS[request.reasoning]
        return (self._default_max_tokens if limit is None else limit) + int(room)

    def read(self, document: Document, request: Request) -> ReplyDraft:
        """Read a message."""
        draft = ReplyDraft(model=document.get("model") or "", id=document.get("id") or "")
        blocks = []
        for given in document["content"]:
            block = _block(given)
            block.pieces.append(
                given["text"] if block.kind == "text" else _write(given.get("input"))
            )
            blocks.append(block)
        _count(draft, document.get("usage"))
        draft.refusal = _explanation(document)
        return _finalize(draft, blocks, document.get("stop_reason"), request)

    def fold(self, request: Request) -> EventFold:
        """A reader for the events of a message."""
        return _Events(request)


@dataclass(slots=True)
class _Block:
    kind: str
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    item: Document = field(default_factory=dict)  # of thinking: the block as it is sent back

    def part(self) -> Document | None:
        """The part of its turn, as `kept_of` takes it; thinking without a signature is none."""
        if self.kind == "text":
            return {"text": sum(map(len, self.pieces))}
        signed = self.item.get("signature") or self.item.get("data")
        return {"item": self.item} if signed else None


def _block(given: Document) -> _Block:
    kind = given["type"]
    item = dict(given) if kind in _THINKING else {}
    return _Block(kind, given.get("id") or "", given.get("name") or "", item=item)


class _Events(EventFold):
    def __init__(self, request: Request) -> None:
        super().__init__(streams_text=request.schema is None or not boxed(request.schema).boxed)
        self._request = request
        self._blocks: dict[int, _Block] = {}
        self._reason: str | None = None

    def take(self, event: Document) -> str:
        """Add an event; unknown types are ignored."""
        kind = event.get("type")
        if kind == "content_block_delta":
            return self._delta(self._blocks[event["index"]], event["delta"])
        if kind == "content_block_start":
            given = event["content_block"]
            self._blocks[event["index"]] = _block(given)
            return self._delta(self._blocks[event["index"]], {"text": given.get("text") or ""})
        if kind == "message_start":
            self.begun = True
            message = event["message"]
            self.draft.model = message.get("model") or ""
            self.draft.id = message.get("id") or ""
            _count(self.draft, message.get("usage"))
        elif kind == "message_delta":
            self._reason = event["delta"].get("stop_reason") or self._reason
            self.draft.refusal = _explanation(event["delta"])
            _count(self.draft, event.get("usage"))
        elif kind == "message_stop":
            self.ended = True
        return ""

    def finished(self) -> ReplyDraft:
        """The complete message."""
        return _finalize(
            self.draft,
            [block for _, block in sorted(self._blocks.items())],
            self._reason,
            self._request,
        )

    def _delta(self, block: _Block, delta: Document) -> str:
        for name in ("thinking", "signature"):
            if delta.get(name):
                block.item[name] = (block.item.get(name) or "") + delta[name]
        piece: str = delta.get("text") or delta.get("partial_json") or ""
        block.pieces.append(piece)
        if block.kind == "text":
            return "" if self._request.schema is not None else piece
        return piece if block.name == ANSWER_TOOL else ""


def _finalize(
    draft: ReplyDraft, blocks: list[_Block], reason: str | None, request: Request
) -> ReplyDraft:
    """The draft with the content of the blocks.

    With a schema, the text is the value, and other text is dropped.
    """
    texts = [block for block in blocks if block.kind == "text"]
    uses = [block for block in blocks if block.kind == "tool_use"]
    draft.finish = _FINISH.get(reason, "other")
    draft.kept = _kept(blocks)
    draft.text = "".join(piece for block in texts for piece in block.pieces)
    draft.tool_calls = tuple(
        ToolCall(use.id, use.name, "".join(use.pieces) or "{}") for use in uses
    )
    if request.schema is not None:
        take_answer(draft, request.schema)
    if draft.finish == "refused":
        draft.refusal = draft.text or draft.refusal or _FILTERED
    return draft


def _explanation(ended: Document) -> str:
    """Why the provider stopped a message, if it says so."""
    return (ended.get("stop_details") or {}).get("explanation") or ""


def _kept(blocks: list[_Block]) -> Kept:
    parts, calls = [], 0
    for block in blocks:
        if block.kind == "tool_use":
            parts.append({"call": calls})
            calls += 1
        elif (part := block.part()) is not None:
            parts.append(part)
    return kept_of(_FAMILY, parts)


def _count(draft: ReplyDraft, usage: Document | None) -> None:
    if usage:
        sent = count(usage.get("input_tokens"))
        if sent is not None:
            draft.cached_input_tokens = count(usage.get("cache_read_input_tokens")) or 0
            draft.cache_write_tokens = count(usage.get("cache_creation_input_tokens")) or 0
            draft.input_tokens = sent + draft.cached_input_tokens + draft.cache_write_tokens
        received = count(usage.get("output_tokens"))
        draft.output_tokens = draft.output_tokens if received is None else received
        details = usage.get("output_tokens_details") or {}
        thought = count(details.get("thinking_tokens"))
        draft.reasoning_tokens = draft.reasoning_tokens if thought is None else thought


# --- writing


def _tool_choice(choice: str) -> Document:
    return {"type": "any"} if choice == ANY_TOOL else {"type": "tool", "name": choice}


def _format(schema: Mapping[str, Any]) -> Document | None:
    """The form of a schema that the model's output is held to; None if it has none."""
    form = strict(boxed(schema).schema)
    return None if form is None else {"type": "json_schema", "schema": without_bounds(form)}


def _turns(messages: tuple[Message, ...]) -> list[Document]:
    """The turns of a conversation; successive tool results are one turn, as the API requires."""
    turns: list[Document] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        content: Any = (
            _blocks(message)
            if message.tool_calls or message.role == "tool" or message.kept or message.files
            else message.content
        )
        last = turns[-1] if turns else None
        if last is not None and last["role"] == role and isinstance(last["content"], list):
            last["content"] += content if isinstance(content, list) else [_text(content)]
        else:
            turns.append({"role": role, "content": content})
    return turns


def _is_long(request: Request) -> bool:
    """Whether what a request shares with others is long enough to be cached."""
    if request.shared_prefix is None or not request.messages:
        return False
    system = sum(map(len, system_texts(request)))
    return system + min(request.shared_prefix, len(request.messages[-1].content)) >= _MIN_CACHED


def _in_two_parts(content: Any, shared: int) -> list[Document]:  # noqa: ANN401 - text or blocks
    """The content of a turn, with its first `shared` characters of text in a part to be cached."""
    blocks = [_text(content)] if isinstance(content, str) else list(content)
    for place, block in enumerate(blocks):
        if block["type"] == "text":
            text = block["text"]
            rest = [_text(text[shared:])] if text[shared:] else []
            return [*blocks[:place], _cached(_text(text[:shared])), *rest, *blocks[place + 1 :]]
    return blocks


def _cached(block: Document) -> Document:
    """The block, up to which the request is to be cached."""
    return {**block, "cache_control": {"type": "ephemeral"}}


def _blocks(message: Message) -> list[Document]:
    if message.role == "tool":
        return [
            {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.content}
        ]
    files = [file_block(file) for file in message.files]
    return files + [
        dict(fields) if part is None else _text(part) if isinstance(part, str) else _use(part)
        for part, fields in turn_parts(message, _FAMILY)
    ]


def _use(call: ToolCall) -> Document:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments_of(call)}


def file_block(file: MediaFile) -> Document:
    """An image or a PDF file as a block of a turn; ValueError if it has changed since."""
    source = {"type": "base64", "media_type": file.media_type, "data": file.base64()}
    return {"type": "document" if file.is_pdf else "image", "source": source}


def _text(text: str) -> Document:
    return {"type": "text", "text": text}


def _tool(tool: Mapping[str, Any]) -> Document:
    rest = {key: value for key, value in tool.items() if key != "parameters"}
    return {**rest, "input_schema": tool.get("parameters") or {"type": "object", "properties": {}}}
