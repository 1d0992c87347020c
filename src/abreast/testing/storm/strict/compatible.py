"""Providers with chat completions like OpenAI's: what each refuses, and how its replies differ."""

import re
from collections.abc import Sequence
from typing import Any

from abreast.testing.storm.dialects.dialect import (
    Event,
    Json,
    Refusal,
    StormDraft,
    StormRequest,
)
from abreast.testing.storm.strict.checks import (
    DEFAULT_EFFORT,
    REASONING_TOKENS,
    PrefixCache,
    names,
    reasoning_text,
    says_json,
)
from abreast.testing.storm.strict.openai import CHAT_FIELDS, StrictChat

_PENALTIES = ("presence_penalty", "frequency_penalty")
_EXTRA = "Extra inputs are not permitted"
_JSON_WORD = (
    "'messages' must contain the word 'json' in some form, to use 'response_format' of type "
    "'json_object'."
)


class DeepSeek(StrictChat):
    """Imitates `api.deepseek.com` with a model of the V4 class, which thinks unless told not to.

    Refuses json_schema, json_object without the word json in the prompt, a forced tool while
    thinking, and a turn with tool calls that comes back without its `reasoning_content`. Ignores
    unknown fields. Counts cached tokens as `prompt_cache_hit_tokens`, in units of 64.
    """

    def __init__(self) -> None:
        super().__init__()
        self._cache = PrefixCache(64, 64)

    def check(self, body: Json, texts: Sequence[str]) -> None:
        """Raise Refusal with DeepSeek's message."""
        kind = (body.get("response_format") or {}).get("type")
        if kind == "json_schema":
            raise _deepseek("response_format", "This response_format type is unavailable now")
        if kind == "json_object" and not says_json(texts):
            raise _deepseek(
                "response_format",
                "Prompt must contain the word 'json' in some form to use 'response_format' of type "
                "'json_object'.",
            )
        if not self.reasoning(body):
            return
        if body.get("tool_choice") not in (None, "auto", "none"):
            raise _deepseek("tool_choice", "Thinking mode does not support this tool_choice")
        if any(
            message.get("tool_calls") and not message.get("reasoning_content")
            for message in body["messages"]
        ):
            raise _deepseek(
                "reasoning_content",
                "The `reasoning_content` in the thinking mode must be passed back to the API.",
            )

    def reasoning(self, body: Json) -> int:
        """Unless it is disabled."""
        if (body.get("thinking") or {}).get("type") == "disabled":
            return 0
        return REASONING_TOKENS.get(body.get("reasoning_effort") or DEFAULT_EFFORT, 0)

    def usage(self, ask: StormRequest, draft: StormDraft) -> Json:
        """With hits and misses of the cache."""
        return {
            "prompt_tokens": draft.input_tokens,
            "completion_tokens": draft.output_tokens,
            "total_tokens": draft.input_tokens + draft.output_tokens,
            "prompt_tokens_details": {"cached_tokens": ask.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": draft.reasoning_tokens},
            "prompt_cache_hit_tokens": ask.cached_tokens,
            "prompt_cache_miss_tokens": draft.input_tokens - ask.cached_tokens,
        }

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """With the reasoning beside the content."""
        reply = super().reply(ask, draft)
        if draft.reasoning_tokens:
            reply["choices"][0]["message"]["reasoning_content"] = reasoning_text(ask)
        return reply

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """With the reasoning first, in chunks whose content is null."""
        events = super().events(ask, draft, pieces)
        if not draft.reasoning_tokens:
            return events
        choice = events[0][1]["choices"][0]
        delta = {"content": None, "reasoning_content": reasoning_text(ask)}
        thought = events[0][1] | {"choices": [choice | {"delta": delta}]}
        return [events[0], ("", thought), *events[1:]]


class Mistral(StrictChat):
    """Imitates `api.mistral.ai`.

    Refuses with 422 all fields that it does not know: `seed` (its word is `random_seed`),
    `stream_options`, `max_completion_tokens`, and unknown fields of messages. The ids of tool calls
    have 9 letters and digits. The last chunk of every stream has the usage.
    """

    _FIELDS = names(
        "model messages temperature top_p max_tokens stream stop random_seed metadata "
        "response_format tools tool_choice presence_penalty frequency_penalty n prediction "
        "parallel_tool_calls prompt_mode reasoning_effort guardrails prompt_cache_key "
        "safe_prompt"
    )
    _MESSAGE_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "prefix"})

    def check(self, body: Json, texts: Sequence[str]) -> None:  # noqa: ARG002 - the port's signature
        """Raise Refusal with the list of extra fields."""
        extra: list[tuple[tuple[str | int, ...], Any]] = [
            (("body", name), body[name]) for name in body if name not in self._FIELDS
        ]
        for number, message in enumerate(body["messages"]):
            extra += [
                (("body", "messages", number, message.get("role", ""), name), message[name])
                for name in message
                if name not in self._MESSAGE_FIELDS
            ]
        if extra:
            detail = [
                {"type": "extra_forbidden", "loc": list(place), "msg": _EXTRA, "input": given}
                for place, given in extra
            ]
            raise Refusal(str(extra[0][0][-1]), {"detail": detail}, 422)
        for message in body["messages"]:
            for call in message.get("tool_calls") or ():
                if re.fullmatch("[a-zA-Z0-9]{9}", call.get("id", "")) is None:
                    raise Refusal(
                        "tool_calls",
                        {
                            "object": "error",
                            "message": f"Tool call id was {call.get('id')} but must be a-z, A-Z, "
                            "0-9, with a length of 9.",
                            "type": "invalid_request_message_order",
                            "param": None,
                            "code": "3280",
                        },
                    )

    def usage(self, ask: StormRequest, draft: StormDraft) -> Json:
        """With the cached tokens as the only detail."""
        return {
            "prompt_tokens": draft.input_tokens,
            "completion_tokens": draft.output_tokens,
            "total_tokens": draft.input_tokens + draft.output_tokens,
            "prompt_tokens_details": {"cached_tokens": ask.cached_tokens},
        }

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """With short ids of tool calls."""
        reply = super().reply(ask, draft)
        for call in reply["choices"][0]["message"].get("tool_calls") or ():
            call["id"] = _short_id(draft)
        return reply

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """With the usage in the chunk that ends the reply, asked for or not."""
        events = super().events(ask, draft, pieces)
        for _, event in events:
            for call in event["choices"][0]["delta"].get("tool_calls") or ():
                if "id" in call:
                    call["id"] = _short_id(draft)
        events[-1][1]["usage"] = self.usage(ask, draft)
        return events


class Groq(StrictChat):
    """Imitates `api.groq.com/openai/v1` with a model that has no structured outputs.

    Refuses json_schema, json_object without the word json in the prompt, log probabilities, and
    unknown fields, as `property 'NAME' is unsupported`.
    """

    def check(self, body: Json, texts: Sequence[str]) -> None:
        """Raise Refusal with Groq's message."""
        for name in body:
            known = name in CHAT_FIELDS | {"reasoning_format", "include_reasoning"}
            if not known or name in ("logprobs", "top_logprobs", "logit_bias"):
                raise _groq(name, f"property '{name}' is unsupported")
        kind = (body.get("response_format") or {}).get("type")
        if kind == "json_schema":
            raise _groq(
                "response_format",
                "This model does not support response format `json_schema`. See supported models "
                "at https://console.groq.com/docs/structured-outputs#supported-models",
            )
        if kind == "json_object" and not says_json(texts):
            raise _groq("response_format", _JSON_WORD)

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """With the usage in `x_groq` as well."""
        events = super().events(ask, draft, pieces)
        events[-1][1]["x_groq"] = {"id": f"req_{draft.number}", "usage": self.usage(ask, draft)}
        return events


class Xai(StrictChat):
    """Imitates `api.x.ai` with a reasoning model.

    Refuses penalties, stop and reasoning_effort; the error is a text beside a code. Ignores unknown
    fields. Reasoning is not in `completion_tokens`, but in `total_tokens`.
    """

    def check(self, body: Json, texts: Sequence[str]) -> None:  # noqa: ARG002 - the port's signature
        """Raise Refusal with the parameter's name as xAI writes it."""
        for name in (*_PENALTIES, "stop", "reasoning_effort"):
            if body.get(name) is not None:
                first, _, second = name.partition("_")
                their_name = first + second.capitalize()
                message = f"Model {body.get('model')} does not support parameter {their_name}."
                code = "Client specified an invalid argument"
                raise Refusal(name, {"code": code, "error": message})

    def reasoning(self, body: Json) -> int:  # noqa: ARG002 - always
        """Always."""
        return REASONING_TOKENS["low"]

    def usage(self, ask: StormRequest, draft: StormDraft) -> Json:
        """Reasoning comes on top of the completion."""
        usage = super().usage(ask, draft)
        usage["completion_tokens"] -= draft.reasoning_tokens
        return usage


class OpenRouter(StrictChat):
    """Imitates `openrouter.ai/api/v1` with a reasoning model.

    Ignores what the model does not have (seed, log probabilities), unless the request says
    `provider.require_parameters`: that is a 404 without a type. Replies have the reasoning, the
    provider, and the cost in the usage.
    """

    def check(self, body: Json, texts: Sequence[str]) -> None:  # noqa: ARG002 - the port's signature
        """Raise Refusal if no endpoint has all parameters."""
        if (body.get("provider") or {}).get("require_parameters"):
            for name in ("seed", "logprobs", "top_logprobs", "logit_bias"):
                if body.get(name) is not None:
                    message = "No endpoints found that can handle the requested parameters."
                    raise Refusal(name, {"error": {"message": message, "code": 404}}, 404)

    def reasoning(self, body: Json) -> int:
        """By effort, in either of its words."""
        effort = (body.get("reasoning") or {}).get("effort") or body.get("reasoning_effort")
        return REASONING_TOKENS.get(effort or "low", 0)

    def usage(self, ask: StormRequest, draft: StormDraft) -> Json:
        """With the cost."""
        return super().usage(ask, draft) | {"cost": 0.000001 * draft.output_tokens}

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """With the provider's name, and its own reason for the end."""
        reply = super().reply(ask, draft) | {"provider": "Storm"}
        for choice in reply["choices"]:
            choice["native_finish_reason"] = choice["finish_reason"]
            choice["message"]["reasoning"] = reasoning_text(ask) or None
        return reply


class OldVllm(StrictChat):
    """Imitates a vLLM server of 2024, before it ignored unknown fields.

    Refuses stream_options, max_completion_tokens and all that it does not know, json_schema (it has
    json_object, and `guided_json` with a schema), and tools unless one is named.
    """

    _FIELDS = CHAT_FIELDS - names(
        "stream_options max_completion_tokens store metadata reasoning_effort verbosity "
        "service_tier prompt_cache_key safety_identifier prediction modalities audio"
    ) | {"guided_json", "guided_regex", "guided_choice", "top_k", "min_p", "repetition_penalty"}

    def check(self, body: Json, texts: Sequence[str]) -> None:  # noqa: ARG002 - the port's signature
        """Raise Refusal with the validation errors as Python writes them."""
        extra = [
            {"type": "extra_forbidden", "loc": ("body", name), "msg": _EXTRA, "input": body[name]}
            for name in body
            if name not in self._FIELDS
        ]
        if extra:
            raise _vllm(str(extra[0]["loc"][1]), str(extra))
        kind = (body.get("response_format") or {}).get("type")
        if kind == "json_schema":
            wrong: list[dict[str, Any]] = [
                {
                    "type": "literal_error",
                    "loc": ("body", "response_format", "type"),
                    "msg": "Input should be 'text' or 'json_object'",
                    "input": kind,
                    "ctx": {"expected": "'text' or 'json_object'"},
                }
            ]
            raise _vllm("response_format", str(wrong))
        choice = body.get("tool_choice")
        if body.get("tools") and choice != "none" and not isinstance(choice, dict):
            raise _vllm(
                "tool_choice",
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to '
                "be set",
            )


def _deepseek(parameter: str, message: str) -> Refusal:
    kind = "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": kind}
    return Refusal(parameter, {"error": error})


def _groq(parameter: str, message: str) -> Refusal:
    return Refusal(parameter, {"error": {"message": message, "type": "invalid_request_error"}})


def _vllm(parameter: str, message: str) -> Refusal:
    body = {"object": "error", "message": message, "type": "BadRequestError", "param": None}
    return Refusal(parameter, body | {"code": 400})


def _short_id(draft: StormDraft) -> str:
    return f"storm{draft.number % 10_000:04}"
