"""OpenAI's chat completions."""

from collections.abc import Sequence
from typing import Any

from abreast.testing.storm.dialects.dialect import (
    FILE_TOKENS,
    Event,
    Json,
    StormDraft,
    StormRequest,
    choose_tool,
    count_tokens,
    files_of,
    key_of,
    required_list,
    text_of,
    token_bound,
)

_FINISH = {
    "stop": "stop",
    "length": "length",
    "tool": "tool_calls",
    "refusal": "content_filter",
}
_ERRORS = {
    "401": ("invalid_request_error", "invalid_api_key", None),
    "403": ("invalid_request_error", "permission_denied", None),
    "404": ("invalid_request_error", "model_not_found", "model"),
    "context": ("invalid_request_error", "context_length_exceeded", "messages"),
    "per_day": ("insufficient_quota", "insufficient_quota", None),
    "rpm": ("requests", "rate_limit_exceeded", None),
    "concurrency": ("requests", "rate_limit_exceeded", None),
    "tpm": ("tokens", "rate_limit_exceeded", None),
    "input_tpm": ("tokens", "rate_limit_exceeded", None),
    "output_tpm": ("tokens", "rate_limit_exceeded", None),
    "oversize": ("tokens", "rate_limit_exceeded", None),
    "bad": ("invalid_request_error", None, None),
}


class OpenAIDialect:
    """Requests and replies as `/v1/chat/completions` has them."""

    lane = "openai"
    done = "data: [DONE]\n\n"

    def ask(self, body: Json, model: str, *, stream: bool) -> StormRequest:  # noqa: ARG002 - the body says both
        """Read a request."""
        messages = required_list(body, "messages")
        texts = [text_of(message.get("content")) for message in messages]
        files = [file for message in messages for file in files_of(message.get("content"))]
        users = [
            text
            for text, message in zip(texts, messages, strict=True)
            if message.get("role") == "user"
        ]
        prompt = users[-1] if users else texts[-1]
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        name = str(body.get("model", ""))
        return StormRequest(
            name,
            prompt,
            key_of(name, body.get("seed"), texts + files),
            sum(map(count_tokens, texts)) + FILE_TOKENS * len(files),
            token_bound(limit, "max_tokens"),
            stream=body.get("stream") is True,
            stream_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            schema=_schema(body.get("response_format")),
            tool=_tool(body, prompt) if "tools" in body else None,
            files=len(files),
        )

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A chat completion."""
        message: Json = {"role": "assistant", "content": draft.text, "refusal": None}
        if draft.tool:
            message |= {"content": None, "tool_calls": [_call(draft)]}
        if draft.finish == "refusal":
            message |= {"content": None, "refusal": draft.text}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _FINISH[draft.finish],
        }
        return _frame(ask, draft, "chat.completion", [choice]) | {"usage": _usage(draft)}

    def empty(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A completion without choices."""
        return _frame(ask, draft, "chat.completion", []) | {"usage": _usage(draft)}

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """Chunks: the role, the pieces, the reason it ended, and the usage if it was asked for."""
        deltas: list[Json] = [{"role": "assistant", "content": ""}]
        if draft.tool:
            call = _call(draft)
            deltas.append(
                {
                    "tool_calls": [
                        {"index": 0, **call, "function": {**call["function"], "arguments": ""}}
                    ]
                }
            )
            deltas += [
                {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces
            ]
        else:
            field = "refusal" if draft.finish == "refusal" else "content"
            deltas += [{field: piece} for piece in pieces]
        kind = "chat.completion.chunk"
        ended = [*((delta, None) for delta in deltas), ({}, _FINISH[draft.finish])]
        events = [
            _frame(ask, draft, kind, [{"index": 0, "delta": delta, "finish_reason": reason}])
            for delta, reason in ended
        ]
        if ask.stream_usage:
            events.append(_frame(ask, draft, kind, []) | {"usage": _usage(draft)})
        return [("", event) for event in events]

    def error(self, status: int, kind: str, message: str, retry_after: str | None) -> Json:  # noqa: ARG002 - the port's signature
        """An error, with the type and code that tell a minute from a day."""
        type_, code, parameter = _ERRORS.get(kind, ("server_error", None, None))
        return {"error": {"message": message, "type": type_, "param": parameter, "code": code}}


def _frame(ask: StormRequest, draft: StormDraft, kind: str, choices: list[Any]) -> Json:
    name = f"chatcmpl-storm{draft.number}"
    return {"id": name, "object": kind, "created": 0, "model": ask.model, "choices": choices}


def _call(draft: StormDraft) -> Json:
    function = {"name": draft.tool, "arguments": draft.text}
    return {"id": f"call_storm{draft.number}", "type": "function", "function": function}


def _usage(draft: StormDraft) -> Json:
    return {
        "prompt_tokens": draft.input_tokens,
        "completion_tokens": draft.output_tokens,
        "total_tokens": draft.input_tokens + draft.output_tokens,
    }


def _schema(wanted: object) -> Json | None:
    if not isinstance(wanted, dict):
        return None
    if wanted.get("type") == "json_object":
        return {"type": "object"}
    schema = (wanted.get("json_schema") or {}).get("schema")
    return schema if isinstance(schema, dict) else None


def _tool(body: Json, prompt: str) -> tuple[str, Json] | None:
    choice = body.get("tool_choice")
    forced = (
        choice.get("function", {}).get("name") if isinstance(choice, dict) else choice == "required"
    )
    functions = [tool.get("function", {}) for tool in required_list(body, "tools")]
    return choose_tool(
        ((each.get("name", ""), each.get("parameters", {})) for each in functions), prompt, forced
    )
