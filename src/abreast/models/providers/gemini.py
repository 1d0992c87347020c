"""Gemini's generateContent API."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import quote

from abreast.models.chat_form import present, with_extra
from abreast.models.http.client import HttpClient, HttpOptions
from abreast.models.lanes import LaneSettings, Structured
from abreast.models.media import MediaFile
from abreast.models.port import ANY_TOOL, Effort, Finish, Message, Request, ToolCall
from abreast.models.providers.accepted_form import AcceptedForm
from abreast.models.providers.provider import (
    Document,
    EventFold,
    Provider,
    arguments_of,
    schema_in_words,
    system_texts,
    ways_from,
)
from abreast.models.providers.reply_draft import ReplyDraft, count
from abreast.models.providers.thinking import EFFORT_TOKENS, kept_of, output_bound, turn_parts

_FINISH: dict[str | None, Finish] = {"STOP": "stop", "MAX_TOKENS": "length"}
_FAMILY = "gemini"  # whose kept signatures are sent back
_LEVELS: dict[Effort, str] = {
    "none": "minimal",
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_REFUSED = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "LANGUAGE",
        "IMAGE_SAFETY",
        "MODEL_ARMOR",
    }
)
_write = json.JSONEncoder(ensure_ascii=False).encode


class Gemini(Provider):
    """A model behind Google's Generative Language API.

    model = Gemini("gemini/gemini-2.5-flash", key=key)
    reply = await model.complete(Request((Message("user", "Hello"),)))
    """

    ends_by_marker = False  # the usage may follow the event with the finish reason

    def __init__(
        self,
        name: str,
        base_url: str = "https://generativelanguage.googleapis.com/v1beta",
        key: str | None = None,
        *,
        structured: Structured = "json_schema",
        form: AcceptedForm | None = None,
        lane: LaneSettings | None = None,
        **wire: Unpack[HttpOptions],
    ) -> None:
        model = quote(name.partition("/")[2] or name, safe="/-._~@")
        url = f"{base_url.rstrip('/')}/{model if '/' in model else f'models/{model}'}"
        http = HttpClient(name, {"x-goog-api-key": key} if key else {}, **wire)
        super().__init__(
            name,
            http,
            f"{url}:generateContent",
            f"{url}:streamGenerateContent?alt=sse",
            ways=ways_from(structured, ("json_schema", "json_object", "none")),
            form=form,
            lane=lane,
        )

    def write(self, request: Request, *, stream: bool) -> Document:  # noqa: ARG002 - the URL selects streaming
        """The body of a request."""
        body: Document = {"contents": _contents(request.messages)}
        system, way = system_texts(request), self.way(request)
        if way in ("json_object", "none"):
            system.append(schema_in_words(request))
        if system:
            body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_tool(each) for each in request.tools]}]
        if request.tool_choice is not None:
            body["toolConfig"] = {"functionCallingConfig": _calling(request.tool_choice)}
        if config := present(
            temperature=request.temperature,
            seed=request.seed,
            stopSequences=request.stop or None,
            maxOutputTokens=output_bound(request),
            thinkingConfig=self._thinking(request),
            responseMimeType=None if way in (None, "none") else "application/json",
            responseJsonSchema=request.schema if way == "json_schema" else None,
        ):
            body["generationConfig"] = config
        return with_extra(body, request.extra)

    def unsent(self, request: Request) -> tuple[str, ...]:
        """What the API has no value for."""
        effort = request.reasoning
        if effort is None or request.thinking_tokens is not None or self._takes_budget:
            return ()
        return () if _LEVELS[effort] == effort else (f"reasoning {_LEVELS[effort]}",)

    @property
    def _takes_budget(self) -> bool:
        return "gemini-2" in self.model  # later ones have levels

    def _thinking(self, request: Request) -> Document | None:
        effort, tokens = request.reasoning, request.thinking_tokens
        if tokens is None and effort is not None and self._takes_budget:
            tokens = EFFORT_TOKENS[effort]
        if tokens is not None:
            return {"thinkingBudget": tokens}
        return None if effort is None else {"thinkingLevel": _LEVELS[effort]}

    def read(self, document: Document, request: Request) -> ReplyDraft:  # noqa: ARG002 - the same for every request
        """Read a whole reply."""
        fold = _Candidates()
        piece = fold.take(document)
        if not fold.begun:
            raise LookupError("no candidate")
        fold.pieces.append(piece)
        return fold.finished()

    def fold(self, request: Request) -> EventFold:  # noqa: ARG002 - the same for every request
        """A reader for the parts of a stream."""
        return _Candidates()


class _Candidates(EventFold):
    """Reads replies with a piece each; a whole reply is a stream of one."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Document] = []

    def take(self, event: Document) -> str:
        """Add a reply."""
        draft = self.draft
        draft.model = event.get("modelVersion") or draft.model
        draft.id = event.get("responseId") or draft.id
        _count(draft, event.get("usageMetadata"))
        blocked = (event.get("promptFeedback") or {}).get("blockReason")
        if blocked:
            self.begun = self.ended = True
            draft.refusal = f"the prompt was blocked ({blocked})"
        for candidate in (event.get("candidates") or ())[:1]:
            self.begun = True
            reason = candidate.get("finishReason")
            if reason:
                self._end(reason, candidate.get("finishMessage"))
            parts = (candidate.get("content") or {}).get("parts") or ()
            calls = [part["functionCall"] for part in parts if "functionCall" in part]
            self._keep(parts, len(draft.tool_calls))
            draft.tool_calls += tuple(
                ToolCall(
                    call.get("id") or f"call-{number}", call["name"], _write(call.get("args") or {})
                )
                for number, call in enumerate(calls, len(draft.tool_calls))
            )
            return "".join(
                part["text"] for part in parts if "text" in part and not part.get("thought")
            )
        return ""

    def finished(self) -> ReplyDraft:
        """The complete reply."""
        self.draft.kept = kept_of(_FAMILY, self._parts)
        return EventFold.finished(self)

    def _keep(self, parts: Sequence[Document], calls: int) -> None:
        for part in parts:
            if "functionCall" in part:
                mine: Document = {"call": calls}
                calls += 1
            elif "text" in part and not part.get("thought"):
                mine = {"text": len(part["text"])}
            else:
                continue
            signature = present(thoughtSignature=part.get("thoughtSignature"))
            self._parts.append({**mine, "with": signature} if signature else mine)

    def _end(self, reason: str, message: str | None) -> None:
        self.ended = True
        self.draft.finish = _FINISH.get(reason, "other")
        if reason in _REFUSED:
            self.draft.refusal = f"{message or 'the provider stopped it'} ({reason})"


def _count(draft: ReplyDraft, usage: Document | None) -> None:
    if usage and (sent := count(usage.get("promptTokenCount"))) is not None:
        draft.input_tokens = sent + (count(usage.get("toolUsePromptTokenCount")) or 0)
        draft.cached_input_tokens = count(usage.get("cachedContentTokenCount")) or 0
        draft.reasoning_tokens = count(usage.get("thoughtsTokenCount")) or 0
        said = count(usage.get("candidatesTokenCount")) or 0
        draft.output_tokens = said + draft.reasoning_tokens


# --- writing


def _contents(messages: tuple[Message, ...]) -> list[Document]:
    """The turns of a conversation; successive tool results are one turn, as the API requires."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    contents: list[Document] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "model" if message.role == "assistant" else "user"
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += _parts(message, names)
        else:
            contents.append({"role": role, "parts": _parts(message, names)})
    return contents


def _parts(message: Message, names: dict[str, str]) -> list[Document]:
    if message.role == "tool":
        name = names.get(message.tool_call_id or "")
        if name is None:
            raise ValueError(f"no turn before it made the tool call {message.tool_call_id}")
        return [{"functionResponse": {"name": name, "response": _response(message.content)}}]
    parts = [file_part(file) for file in message.files]
    if parts and not message.content:
        return parts
    return parts + [{**_part(part), **fields} for part, fields in turn_parts(message, _FAMILY)]


def _part(part: str | ToolCall | None) -> Document:
    if part is None:
        return {}
    if isinstance(part, str):
        return {"text": part}
    return {"functionCall": {"name": part.name, "args": arguments_of(part)}}


def file_part(file: MediaFile) -> Document:
    """An image or a PDF file as a part of a turn; ValueError if it has changed since."""
    return {"inlineData": {"mimeType": file.media_type, "data": file.base64()}}


def _response(content: str) -> Document:
    try:
        response = json.loads(content)
    except ValueError:
        response = None
    return response if isinstance(response, dict) else {"result": content}


def _tool(tool: Mapping[str, Any]) -> Document:
    rest = {key: value for key, value in tool.items() if key != "parameters"}
    return {**rest, "parametersJsonSchema": tool["parameters"]} if tool.get("parameters") else rest


def _calling(choice: str) -> Document:
    """The mode in which a tool is called: any, or this one."""
    names = {} if choice == ANY_TOOL else {"allowedFunctionNames": [choice]}
    return {"mode": "ANY", **names}
