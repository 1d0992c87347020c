"""Gemini's generateContent."""

from collections.abc import Sequence
from json import loads
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

_FINISH = {"stop": "STOP", "tool": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}
_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_QUOTAS = {
    "rpm": "GenerateRequestsPerMinutePerProjectPerModel",
    "per_day": "GenerateRequestsPerDayPerProjectPerModel",
    "tpm": "GenerateContentTokensPerMinutePerProjectPerModel",
    "input_tpm": "GenerateContentInputTokensPerModelPerMinute",
}


class GeminiDialect:
    """Requests and replies as `:generateContent` and `:streamGenerateContent` have them."""

    lane = "gemini"
    done = ""

    def ask(self, body: Json, model: str, *, stream: bool) -> StormRequest:
        """Read a request; the model and whether it streams are in the path."""
        contents = required_list(body, "contents")
        system = body.get("systemInstruction") or body.get("system_instruction") or {}
        texts = [text_of(part.get("parts")) for part in (system, *contents)]
        files = [file for turn in contents for file in files_of(turn.get("parts"))]
        config = body.get("generationConfig") or {}
        return StormRequest(
            model,
            texts[-1],
            key_of(model, config.get("seed"), texts + files),
            sum(map(count_tokens, texts)) + FILE_TOKENS * len(files),
            token_bound(config.get("maxOutputTokens"), "maxOutputTokens"),
            stream=stream,
            schema=config.get("responseJsonSchema") or config.get("responseSchema"),
            tool=_tool(body, texts[-1]) if "tools" in body else None,
            files=len(files),
        )

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """One candidate."""
        return self._frame(ask, draft, draft.text, last=True)

    def empty(self, ask: StormRequest, draft: StormDraft) -> Json:
        """No candidate."""
        return {"candidates": [], "usageMetadata": _usage(draft), "modelVersion": ask.model}

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """Replies with a piece each; the last one says why it ended and what was used."""
        if draft.tool or draft.finish == "refusal":
            return [("", self.reply(ask, draft))]
        last = len(pieces) - 1
        return [
            ("", self._frame(ask, draft, piece, last=at == last)) for at, piece in enumerate(pieces)
        ]

    def error(self, status: int, kind: str, message: str, retry_after: str | None) -> Json:
        """An error; a 429 says which quota it was, and how long to wait, in its details."""
        details: list[Json] = []
        if kind in _QUOTAS:
            violation = {"quotaId": _QUOTAS[kind]}
            details.append(
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]}
            )
        if retry_after is not None and retry_after[0].isdigit():
            details.append(
                {
                    "@type": "type.googleapis.com/google.rpc.RetryInfo",
                    "retryDelay": f"{retry_after}s",
                }
            )
        error = {"code": status, "message": message, "status": _ERRORS.get(status, "INTERNAL")}
        return {"error": {**error, **({"details": details} if details else {})}}

    def _frame(self, ask: StormRequest, draft: StormDraft, text: str, *, last: bool) -> Json:
        calls = draft.tool and draft.finish == "tool"
        part = (
            {"functionCall": {"name": draft.tool, "args": loads(text)}} if calls else {"text": text}
        )
        candidate: Json = {"content": {"parts": [part], "role": "model"}, "index": 0}
        if last:
            candidate["finishReason"] = _FINISH[draft.finish]
        if draft.finish == "refusal":
            del candidate["content"]
        return {
            "candidates": [candidate],
            "usageMetadata": _usage(draft),
            "modelVersion": ask.model,
        }


def _usage(draft: StormDraft) -> Json:
    return {
        "promptTokenCount": draft.input_tokens,
        "candidatesTokenCount": draft.output_tokens,
        "totalTokenCount": draft.input_tokens + draft.output_tokens,
    }


def _tool(body: Json, prompt: str) -> tuple[str, Json] | None:
    mode = ((body.get("toolConfig") or {}).get("functionCallingConfig") or {}).get("mode")
    functions: list[Any] = [
        each
        for tool in required_list(body, "tools")
        for each in tool.get("functionDeclarations", [])
    ]
    return choose_tool(
        ((each.get("name", ""), each.get("parameters", {})) for each in functions),
        prompt,
        mode == "ANY",
    )
