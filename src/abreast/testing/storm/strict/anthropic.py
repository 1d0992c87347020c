"""Anthropic's messages, with the newest models and with those before them."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from abreast.testing.storm.dialects.anthropic import AnthropicDialect
from abreast.testing.storm.dialects.dialect import (
    Event,
    Json,
    Refusal,
    StormDraft,
    StormRequest,
    count_tokens,
    encode,
    text_of,
)
from abreast.testing.storm.strict.checks import (
    REASONING_TOKENS,
    answer_tool,
    is_object,
    names,
    reasoning_text,
    schema_in,
    sign,
    subschemas,
)

_FIELDS = names(
    "model messages max_tokens system stop_sequences stream tools tool_choice thinking metadata "
    "service_tier cache_control container context_management mcp_servers inference_geo"
)
_SAMPLING = ("temperature", "top_p", "top_k")
_TOOL_FIELDS = names(
    "name description input_schema type cache_control strict eager_input_streaming defer_loading "
    "input_examples allowed_callers"
)
_MESSAGE_FIELDS = frozenset({"role", "content"})
_CACHE_MINIMUM = 1024  # tokens; a shorter prefix is not cached, and no error
_DEFAULT_EFFORT = "high"
# Keywords that native structured outputs do not have, by type.
_UNSUPPORTED_KEYWORDS = {
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength"),
    "array": ("maxItems", "uniqueItems"),
}


class AnthropicClassic(AnthropicDialect):
    """Imitates `api.anthropic.com/v1/messages` with a model of before structured outputs.

    Accepts temperature and a forced tool. Refuses unknown fields, `output_config` among them, and
    a forced tool while thinking (`thinking: {type: enabled, budget_tokens: N}`). Thinking blocks
    have to come back unchanged in a tool loop. Caches what `cache_control` marks.
    """

    fields = _FIELDS | frozenset(_SAMPLING)

    def __init__(self) -> None:
        self._cached: set[bytes] = set()
        self._thoughts: dict[str, str] = {}  # the thinking that was sent, by its signature
        self._calls: set[str] = set()  # the ids of tool calls that came after thinking

    # --- reading

    def ask(self, body: Json, model: str, *, stream: bool) -> StormRequest:
        """Read a request; raises Refusal for one that Anthropic refuses."""
        plain = super().ask(body, model, stream=stream)
        try:
            self._check(body)
        except Refusal as refusal:
            refusal.model = plain.model
            raise
        texts = [text_of(body.get("system")), *(_text(each) for each in body["messages"])]
        read, written = self._cache(plain.model, body)
        return plain._replace(
            input_tokens=sum(map(count_tokens, texts)),
            schema=plain.schema or schema_in(texts),
            tool=_tool(body, plain.tool, texts),
            reasoning_tokens=self._thinking(body),
            cached_tokens=read,
            cache_write_tokens=written,
            shows_reasoning=self._shows(body),
        )

    def _check(self, body: Json) -> None:
        self._check_model(body)
        for place, name in self._unknown_names(body):
            raise _extra(place, name)
        for message in body["messages"]:
            if message.get("role") not in ("user", "assistant"):
                raise _invalid(
                    "messages",
                    f'messages: Unexpected role "{message.get("role")}". The Messages API accepts '
                    'a top-level `system` parameter, not "system" as an input message role.',
                )
        if self._thinking(body) and _is_forced(body):
            raise _invalid(
                "tool_choice", "Thinking may not be enabled when tool_choice forces tool use."
            )
        self._check_thinking_blocks(body)

    def _unknown_names(self, body: Json) -> Iterator[tuple[str, str]]:
        """The place of each unknown field, and the parameter that it belongs to."""
        yield from ((name, name) for name in body if name not in self.fields)
        for number, message in enumerate(body["messages"]):
            extra = (name for name in message if name not in _MESSAGE_FIELDS)
            yield from ((f"messages.{number}.{name}", name) for name in extra)
        for number, tool in enumerate(body.get("tools") or ()):
            extra = (name for name in tool if name not in _TOOL_FIELDS)
            if tool.get("type", "custom") == "custom":
                yield from ((f"tools.{number}.custom.{name}", "tools") for name in extra)

    def _check_model(self, body: Json) -> None:
        """What this model refuses."""
        if (body.get("thinking") or {}).get("type") == "adaptive":
            raise _invalid("thinking", "adaptive thinking is not supported on this model")

    def _check_thinking_blocks(self, body: Json) -> None:
        """All that come back are as they were sent; none is missing in a tool loop."""
        messages = body["messages"]
        for number, message in enumerate(messages):
            if message["role"] != "assistant" or not isinstance(message["content"], list):
                continue
            blocks = message["content"]
            for place, block in enumerate(blocks):
                if block.get("type") == "thinking":
                    self._check_signature(block, f"messages.{number}.content.{place}")
            calls = [block.get("id", "") for block in blocks if block.get("type") == "tool_use"]
            if not self._calls.intersection(calls) or not self._thinking(body):
                continue
            kind = blocks[0].get("type")
            if kind not in ("thinking", "redacted_thinking"):
                raise _invalid(
                    "thinking",
                    f"messages.{number}.content.0.type: Expected `thinking` or "
                    f"`redacted_thinking`, but found `{kind}`. When `thinking` is enabled, a final "
                    "`assistant` message must start with a thinking block (preceding the lastmost "
                    "set of `tool_use` and `tool_result` blocks).",
                )

    def _check_signature(self, block: Json, where: str) -> None:
        thought = self._thoughts.get(block.get("signature", ""))
        if thought is None:
            raise _invalid("thinking", f"{where}: Invalid `signature` in `thinking` block")
        if thought != block.get("thinking"):
            raise _invalid(
                "thinking",
                f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant "
                "message cannot be modified. These blocks must remain as they were in the original "
                "response.",
            )

    def _thinking(self, body: Json) -> int:
        thinking = body.get("thinking") or {}
        if thinking.get("type") == "enabled":
            return min(int(thinking.get("budget_tokens", 1024)), REASONING_TOKENS["medium"])
        return 0

    def _shows(self, body: Json) -> bool:
        return bool((body.get("thinking") or {}).get("display", "summarized") == "summarized")

    def _cache(self, model: str, body: Json) -> tuple[int, int]:
        """The tokens up to the last mark that are read from the cache, and written to it."""
        digest = blake2b(model.encode(), digest_size=16)
        tokens = read = end = 0
        for block in _blocks(body):
            digest.update(encode({k: v for k, v in block.items() if k != "cache_control"}).encode())
            tokens += count_tokens(_block_text(block))
            if "cache_control" not in block or tokens < _CACHE_MINIMUM:
                continue
            end = tokens
            if digest.digest() in self._cached:
                read = tokens
            self._cached.add(digest.digest())
        return read, end - read

    # --- writing

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A message, with a thinking block first if it thought."""
        reply = super().reply(ask, draft)
        if draft.reasoning_tokens:
            said = reply["content"] if draft.text or draft.tool else []
            reply["content"] = [self._thinking_block(ask, draft), *said]
        return reply | {"usage": _usage(ask, draft)}

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """The events of a stream, those of a thinking block first if it thought."""
        events = super().events(ask, draft, pieces)
        usage = _usage(ask, draft)
        events[0][1]["message"]["usage"] = usage | {"output_tokens": 1}
        events[-2][1]["usage"] = usage
        if not draft.reasoning_tokens:
            return events
        block = self._thinking_block(ask, draft)
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        signed = {"type": "signature_delta", "signature": block["signature"]}
        thought: list[Json] = [{"type": "content_block_start", "index": 0, "content_block": empty}]
        if block["thinking"]:
            delta = {"type": "thinking_delta", "thinking": block["thinking"]}
            thought.append({"type": "content_block_delta", "index": 0, "delta": delta})
        thought += [
            {"type": "content_block_delta", "index": 0, "delta": signed},
            {"type": "content_block_stop", "index": 0},
        ]
        rest = events[1:] if draft.text or draft.tool else events[-2:]
        for _, event in rest:
            if "index" in event:
                event["index"] = 1
        return [events[0], *((each["type"], each) for each in thought), *rest]

    def _thinking_block(self, ask: StormRequest, draft: StormDraft) -> Json:
        text = reasoning_text(ask) if ask.shows_reasoning else ""
        signature = sign(text, ask.key)
        self._thoughts[signature] = text
        if draft.tool:
            self._calls.add(f"toolu_storm{draft.number}")
        return {"type": "thinking", "thinking": text, "signature": signature}


class AnthropicNew(AnthropicClassic):
    """Imitates `api.anthropic.com/v1/messages` with the newest models (Opus 4.7 and after).

    Refuses temperature, top_p and top_k, a forced tool_choice, an assistant turn at the end, and a
    budget of thinking: thinking is `adaptive`, with `output_config.effort`. Has native
    `output_config.format`, with the schemas that it allows. The text of the thinking is left out
    unless `display` says summarized; the signature comes in any case.
    """

    fields = _FIELDS | frozenset({"output_config", *_SAMPLING})

    def _check_model(self, body: Json) -> None:
        for name in _SAMPLING:
            if body.get(name) is not None:
                raise _invalid(name, f"`{name}` is deprecated for this model.")
        if _is_forced(body):
            raise _invalid(
                "tool_choice", "tool_choice forces tool use is not compatible with this model."
            )
        if (body.get("thinking") or {}).get("type") == "enabled":
            raise _invalid(
                "thinking",
                '"thinking.type.enabled" is not supported for this model. Use '
                '"thinking.type.adaptive" and "output_config.effort" to control thinking behavior.',
            )
        if body["messages"][-1].get("role") == "assistant":
            raise _invalid(
                "messages",
                "This model does not support assistant message prefill. The conversation must end "
                "with a user message.",
            )
        for name in body.get("output_config") or {}:
            if name not in ("format", "effort", "task_budget"):
                raise _extra(f"output_config.{name}", "output_config")
        form = (body.get("output_config") or {}).get("format")
        if form is not None:
            _check_native_schema(form["schema"])

    def _thinking(self, body: Json) -> int:
        if (body.get("thinking") or {}).get("type") != "adaptive":
            return 0
        effort = (body.get("output_config") or {}).get("effort", _DEFAULT_EFFORT)
        return REASONING_TOKENS[effort]

    def _shows(self, body: Json) -> bool:
        return bool((body.get("thinking") or {}).get("display") == "summarized")


def _check_native_schema(schema: Json) -> None:
    name = "output_config.format.schema"
    for _, each in subschemas(schema):
        kind = each.get("type")
        problem = ""
        if is_object(each) and each.get("additionalProperties") is not False:
            problem = "For 'object' type, 'additionalProperties' must be explicitly set to false"
        found = [
            word
            for word in _UNSUPPORTED_KEYWORDS.get(kind if isinstance(kind, str) else "", ())
            if word in each
        ]
        if found:
            words = ", ".join(found)
            many = "properties" if len(found) > 1 else "property"
            verb = "are" if len(found) > 1 else "is"
            problem = f"For '{kind}' type, {many} {words} {verb} not supported"
        if problem:
            raise _invalid(name, f"{name}: {problem}")


def _invalid(parameter: str, message: str) -> Refusal:
    error = {"type": "invalid_request_error", "message": message}
    return Refusal(parameter, {"type": "error", "error": error, "request_id": "req_storm"})


def _extra(path: str, parameter: str) -> Refusal:
    return _invalid(parameter, f"{path}: Extra inputs are not permitted")


def _is_forced(body: Json) -> bool:
    return (body.get("tool_choice") or {}).get("type") in ("tool", "any")


def _usage(ask: StormRequest, draft: StormDraft) -> Json:
    """Input tokens are those that are neither read from the cache nor written to it."""
    usage: Json = {
        "input_tokens": draft.input_tokens - ask.cached_tokens - ask.cache_write_tokens,
        "cache_creation_input_tokens": ask.cache_write_tokens,
        "cache_read_input_tokens": ask.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": ask.cache_write_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": draft.output_tokens,
        "service_tier": "standard",
    }
    if draft.reasoning_tokens:
        usage["output_tokens_details"] = {"thinking_tokens": draft.reasoning_tokens}
    return usage


def _blocks(body: Json) -> Iterator[Json]:
    """All that a prefix consists of, in its order: tools, system, messages."""
    yield from body.get("tools") or ()
    for content in (body.get("system"), *(each.get("content") for each in body["messages"])):
        if isinstance(content, list):
            yield from content
        elif content:
            yield {"type": "text", "text": content}


def _block_text(block: Json) -> str:
    kind = block.get("type", "")
    if kind == "text":
        return str(block.get("text", ""))
    return text_of(block.get("content")) if kind == "tool_result" else ""


def _text(message: Json) -> str:
    content: Any = message.get("content")
    return "".join(map(_block_text, content)) if isinstance(content, list) else text_of(content)


def _tool(
    body: Json, chosen: tuple[str, Json] | None, texts: Sequence[str]
) -> tuple[str, Json] | None:
    if _is_forced(body) or not body.get("tools"):
        return chosen
    last = body["messages"][-1].get("content")
    answered = isinstance(last, list) and any(one.get("type") == "tool_result" for one in last)
    if answered or (body.get("tool_choice") or {}).get("type") == "none":
        return None
    return answer_tool(
        [
            (each.get("name", ""), each.get("description", ""), each.get("input_schema", {}))
            for each in body["tools"]
        ],
        texts,
    )
