"""OpenAI's Responses API."""

from collections.abc import Mapping
from typing import Any, Unpack

from abreast.models.chat_form import present, responses_file_form, with_extra
from abreast.models.http.client import HttpClient, HttpOptions
from abreast.models.lanes import LaneSettings, Structured
from abreast.models.port import ANY_TOOL, Finish, Message, Request, ToolCall
from abreast.models.providers.accepted_form import STRUCTURED_WAYS, AcceptedForm
from abreast.models.providers.errors import fault_in
from abreast.models.providers.provider import (
    ANSWER_TOOL,
    Document,
    EventFold,
    Provider,
    answer_tool,
    schema_in_words,
    take_answer,
    ways_from,
)
from abreast.models.providers.reply_draft import ReplyDraft, count
from abreast.models.providers.thinking import (
    kept_of,
    output_bound,
    turn_parts,
    unbounded_thinking,
)
from abreast.models.schema import boxed, strict

_FAMILY = "openai-responses"  # whose kept items are sent back
MIN_OUTPUT_TOKENS = 16  # the API refuses a smaller bound
_FINISH: dict[str | None, Finish] = {"max_output_tokens": "length", "content_filter": "refused"}
_FILTERED = "a content filter stopped it"
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")
# Models before the reasoning ones, which refuse `include` with reasoning.
_WITHOUT_REASONING = ("gpt-3", "gpt-4", "chatgpt-4")


class OpenAIResponses(Provider):
    """A model behind the Responses API.

    Nothing is stored at the provider: each request has the whole conversation. The API has no
    seeds and no stop texts; a reply to a request with stop texts says so in `changed`.

        model = OpenAIResponses("openai/gpt-5", key=key)
        reply = await model.complete(Request((Message("user", "Hello"),)))
    """

    def __init__(
        self,
        name: str,
        base_url: str = "https://api.openai.com/v1",
        key: str | None = None,
        *,
        structured: Structured = "json_schema",
        form: AcceptedForm | None = None,
        lane: LaneSettings | None = None,
        **wire: Unpack[HttpOptions],
    ) -> None:
        http = HttpClient(name, {"authorization": f"Bearer {key}"} if key else {}, **wire)
        path, mark, query = base_url.partition("?")
        super().__init__(
            name,
            http,
            f"{path.rstrip('/')}/responses{mark}{query}",
            ways=ways_from(structured, STRUCTURED_WAYS),
            form=form,
            lane=lane,
        )

    def write(self, request: Request, *, stream: bool) -> Document:
        """The body of a request."""
        bound, way = output_bound(request), self.way(request)
        tools, choice = [_tool(each) for each in request.tools], request.tool_choice
        if choice is None and request.schema is not None and way == "tool":
            tools.append(_tool(answer_tool(request.schema)))
            choice = ANY_TOOL if request.tools else ANSWER_TOOL
        system = request.system
        if way in ("json_object", "none"):
            system = "\n\n".join(filter(None, (system, schema_in_words(request))))
        carries = bool(request.tools) and not self.model.startswith(_WITHOUT_REASONING)
        body = {
            "model": self.model,
            "input": [item for message in request.messages for item in _items(message)],
            "store": False,
            **present(
                instructions=system or None,
                temperature=request.temperature,
                max_output_tokens=None if bound is None else max(bound, MIN_OUTPUT_TOKENS),
                reasoning=None if request.reasoning is None else {"effort": request.reasoning},
                text=_text_form(request, way),
                tools=tools or None,
                tool_choice=None if choice is None else _tool_choice(choice),
                include=["reasoning.encrypted_content"] if carries else None,
                stream=True if stream else None,
            ),
        }
        return with_extra(body, request.extra)

    def unsent(self, request: Request) -> tuple[str, ...]:
        """What the API has no field for, or no such value."""
        bound = output_bound(request)
        return (
            *(("without stop",) if request.stop else ()),
            *unbounded_thinking(request),
            *(
                (f"max_tokens {MIN_OUTPUT_TOKENS}",)
                if (bound or MIN_OUTPUT_TOKENS) < MIN_OUTPUT_TOKENS
                else ()
            ),
        )

    def read(self, document: Document, request: Request) -> ReplyDraft:
        """Read a whole response."""
        draft = ReplyDraft(model=document.get("model") or "", id=document.get("id") or "")
        texts: list[str] = []
        refusals: list[str] = []
        calls: list[ToolCall] = []
        parts: list[Document] = []
        for item in document["output"]:
            if item["type"] == "message":
                said = [part["text"] for part in item["content"] if part["type"] == "output_text"]
                refusals += [
                    part["refusal"] for part in item["content"] if part["type"] == "refusal"
                ]
                phase = present(phase=item.get("phase"))
                parts.append({"text": len("".join(said)), **({"with": phase} if phase else {})})
                texts += said
            elif item["type"] == "function_call":
                parts.append({"call": len(calls)})
                calls.append(ToolCall(item["call_id"], item["name"], item.get("arguments") or ""))
            elif item["type"] == "reasoning" and item.get("encrypted_content"):
                parts.append({"item": item})
        draft.kept = kept_of(_FAMILY, parts)
        draft.text, draft.tool_calls = "".join(texts), tuple(calls)
        draft.refusal = "".join(refusals)
        _end(draft, document)
        if request.schema is not None:
            take_answer(draft, request.schema)
        _count(draft, document.get("usage"))
        return draft

    def fold(self, request: Request) -> EventFold:
        """A reader for the events of a response."""
        return _Events(self, request)

    def check_failure(self, response: Document) -> None:
        """Raise the error that a response has instead of its output."""
        if (fault := fault_in(self.name, response, clean=self._http.clean)) is not None:
            raise fault


class _Events(EventFold):
    """Reads a stream; its last event repeats the whole response."""

    def __init__(self, model: OpenAIResponses, request: Request) -> None:
        super().__init__(streams_text=request.schema is None or not boxed(request.schema).boxed)
        self._model = model
        self._request = request
        self._items: list[Document] = []
        self._response: Document = {}

    def take(self, event: Document) -> str:
        """Add an event; unknown types are ignored."""
        kind = event["type"]
        self.begun = True
        if kind == "response.output_text.delta":
            if not isinstance(piece := event["delta"], str):
                raise TypeError("a piece is a text")
            return piece
        if kind == "response.output_item.done":
            self._items.append(event["item"])
        elif kind == "error":
            self._model.check_failure({"error": event})
        elif kind in _LAST_EVENTS:
            self.ended = True
            self._response = event["response"]
            self._model.check_failure(self._response)
            # Some servers leave the output out of the last event.
            self._response["output"] = self._response.get("output") or self._items
            self.draft = self._model.read(self._response, self._request)
        return ""

    def finished(self) -> ReplyDraft:
        """The complete response."""
        return self.draft


def _end(draft: ReplyDraft, document: Document) -> None:
    if document.get("status") == "incomplete":
        reason = (document.get("incomplete_details") or {}).get("reason")
        draft.finish = _FINISH.get(reason, "other")
    elif document.get("status", "completed") != "completed":
        draft.finish = "other"
    elif draft.tool_calls:
        draft.finish = "tool_calls"
    if draft.finish == "refused" and not draft.refusal:
        draft.refusal = _FILTERED


def _count(draft: ReplyDraft, usage: Document | None) -> None:
    if usage:
        draft.input_tokens = count(usage.get("input_tokens"))
        draft.output_tokens = count(usage.get("output_tokens"))
        sent = usage.get("input_tokens_details") or {}
        draft.cached_input_tokens = count(sent.get("cached_tokens")) or 0
        received = usage.get("output_tokens_details") or {}
        draft.reasoning_tokens = count(received.get("reasoning_tokens")) or 0


# --- writing


def _items(message: Message) -> list[Document]:
    if message.role == "tool":
        output = {"call_id": message.tool_call_id, "output": message.content}
        return [{"type": "function_call_output", **output}]
    if message.files:
        parts = [responses_file_form(file) for file in message.files]
        said = [{"type": "input_text", "text": message.content}] if message.content else []
        return [{"role": message.role, "content": parts + said}]
    return [
        {**_item(part, message.role), **fields} for part, fields in turn_parts(message, _FAMILY)
    ]


def _item(part: str | ToolCall | None, role: str) -> Document:
    if part is None:
        return {}
    if isinstance(part, str):
        return {"role": role, "content": part}
    return {
        "type": "function_call",
        "call_id": part.id,
        "name": part.name,
        "arguments": part.arguments,
    }


def _tool(tool: Mapping[str, Any]) -> Document:
    # Without `strict`, the API would change the schema into its strict form.
    nothing = {"type": "object", "properties": {}}
    return {
        "type": "function",
        "strict": False,
        **tool,
        "parameters": tool.get("parameters") or nothing,
    }


def _tool_choice(choice: str) -> str | Document:
    return "required" if choice == ANY_TOOL else {"type": "function", "name": choice}


def _text_form(request: Request, way: Structured | None) -> Document | None:
    if way == "json_schema" and request.schema is not None:
        return {"format": _format(request.schema)}
    return {"format": {"type": "json_object"}} if way == "json_object" else None


def _format(schema: Mapping[str, Any]) -> Document:
    whole = boxed(schema).schema
    form = strict(whole)
    return {
        "type": "json_schema",
        "name": "reply",
        "schema": whole if form is None else form,
        "strict": form is not None,
    }
