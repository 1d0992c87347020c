"""Anthropic's messages."""

from collections.abc import Sequence
from json import loads
from typing import Any

from abreast.testing.storm.dialects.dialect import (
    FILE_TOKENS,
    BadRequest,
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

_STOP = {"stop": "end_turn", "length": "max_tokens", "tool": "tool_use", "refusal": "refusal"}
_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicDialect:
    """Requests and replies as `/v1/messages` has them."""

    lane = "anthropic"
    done = ""

    def ask(self, body: Json, model: str, *, stream: bool) -> StormRequest:  # noqa: ARG002 - the body says both
        """Read a request."""
        messages = required_list(body, "messages")
        texts = [
            text_of(body.get("system")),
            *(text_of(message.get("content")) for message in messages),
        ]
        files = [file for message in messages for file in files_of(message.get("content"))]
        limit = token_bound(body.get("max_tokens"), "max_tokens")
        if limit is None:
            raise BadRequest("max_tokens: this field is required")
        name = str(body.get("model", ""))
        return StormRequest(
            name,
            texts[-1],
            key_of(name, None, texts + files),
            sum(map(count_tokens, texts)) + FILE_TOKENS * len(files),
            limit,
            stream=body.get("stream") is True,
            schema=_schema(body),
            tool=_tool(body, texts[-1]) if "tools" in body else None,
            files=len(files),
        )

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A message."""
        content = [] if draft.finish == "refusal" else [_block(draft)]
        return _message(ask, draft, content) | {
            "stop_reason": _STOP[draft.finish],
            "usage": _usage(draft),
        }

    def empty(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A message without content."""
        return _message(ask, draft, []) | {"stop_reason": "end_turn", "usage": _usage(draft)}

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """The events of a stream, from message_start to message_stop."""
        started = _message(ask, draft, []) | {
            "usage": {"input_tokens": draft.input_tokens, "output_tokens": 1}
        }
        events: list[Json] = [{"type": "message_start", "message": started}]
        if draft.finish != "refusal":
            block = _block(draft) | {"input" if draft.tool else "text": {} if draft.tool else ""}
            kind, field = ("input_json", "partial_json") if draft.tool else ("text", "text")
            deltas = [{"type": f"{kind}_delta", field: piece} for piece in pieces]
            events += [
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "ping"},
                *({"type": "content_block_delta", "index": 0, "delta": each} for each in deltas),
                {"type": "content_block_stop", "index": 0},
            ]
        ended = {"stop_reason": _STOP[draft.finish], "stop_sequence": None}
        usage = {"output_tokens": draft.output_tokens}
        events += [
            {"type": "message_delta", "delta": ended, "usage": usage},
            {"type": "message_stop"},
        ]
        return [(event["type"], event) for event in events]

    def error(self, status: int, kind: str, message: str, retry_after: str | None) -> Json:  # noqa: ARG002 - the port's signature
        """An error, named for its status."""
        return {
            "type": "error",
            "error": {"type": _ERRORS.get(status, "api_error"), "message": message},
        }


def _message(ask: StormRequest, draft: StormDraft, content: list[Any]) -> Json:
    return {
        "id": f"msg_storm{draft.number}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
    }


def _block(draft: StormDraft) -> Json:
    if draft.tool:
        return {
            "type": "tool_use",
            "id": f"toolu_storm{draft.number}",
            "name": draft.tool,
            # Half of the arguments are not valid JSON.
            "input": {} if draft.finish == "length" else loads(draft.text),
        }
    return {"type": "text", "text": draft.text}


def _usage(draft: StormDraft) -> Json:
    return {"input_tokens": draft.input_tokens, "output_tokens": draft.output_tokens}


def _schema(body: Json) -> Json | None:
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format")
    schema = (wanted or {}).get("schema")
    return schema if isinstance(schema, dict) else None


def _tool(body: Json, prompt: str) -> tuple[str, Json] | None:
    choice = body.get("tool_choice") or {}
    forced = choice.get("name") if choice.get("type") == "tool" else choice.get("type") == "any"
    tools = (
        (tool.get("name", ""), tool.get("input_schema", {}))
        for tool in required_list(body, "tools")
    )
    return choose_tool(tools, prompt, forced)
