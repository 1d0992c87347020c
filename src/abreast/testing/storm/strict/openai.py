"""OpenAI's chat completions with a reasoning model, and what strict chat profiles share."""

from collections.abc import Mapping, Sequence
from typing import Any

from abreast.testing.storm.dialects.dialect import (
    Event,
    Json,
    Refusal,
    StormDraft,
    StormRequest,
    text_of,
)
from abreast.testing.storm.dialects.openai import OpenAIDialect
from abreast.testing.storm.strict.checks import (
    DEFAULT_EFFORT,
    REASONING_TOKENS,
    PrefixCache,
    answer_tool,
    is_object,
    names,
    says_json,
    schema_in,
    subschemas,
)

CHAT_FIELDS = names(
    "model messages audio frequency_penalty function_call functions logit_bias logprobs "
    "max_completion_tokens max_tokens metadata modalities n parallel_tool_calls prediction "
    "presence_penalty prompt_cache_key prompt_cache_retention reasoning_effort response_format "
    "safety_identifier seed service_tier stop store stream stream_options temperature tool_choice "
    "tools top_logprobs top_p user verbosity web_search_options"
)
_WITHOUT_REASONING = (
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "stop",
)


class StrictChat(OpenAIDialect):
    """Chat completions that are checked. Subclasses say what they refuse and what they count."""

    def __init__(self) -> None:
        self._cache = PrefixCache()

    # --- for subclasses

    def check(self, body: Json, texts: Sequence[str]) -> None:
        """Raise Refusal for what the provider does not accept."""

    def reasoning(self, body: Json) -> int:  # noqa: ARG002 - for subclasses
        """The tokens of reasoning before the reply."""
        return 0

    def usage(self, ask: StormRequest, draft: StormDraft) -> Json:
        """The usage of a reply."""
        return {
            "prompt_tokens": draft.input_tokens,
            "completion_tokens": draft.output_tokens,
            "total_tokens": draft.input_tokens + draft.output_tokens,
            "prompt_tokens_details": {"cached_tokens": ask.cached_tokens, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": draft.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }

    # --- the dialect

    def ask(self, body: Json, model: str, *, stream: bool) -> StormRequest:
        """Read a request; raises Refusal for one that the provider refuses."""
        plain = super().ask(body, model, stream=stream)
        texts = [text_of(message.get("content")) for message in body["messages"]]
        try:
            self.check(body, texts)
        except Refusal as refusal:
            refusal.model = plain.model
            raise
        last = body["messages"][-1].get("role")
        return plain._replace(
            schema=_schema(body, plain.schema, texts),
            tool=_tool(body, plain.tool, texts, answered=last == "tool"),
            reasoning_tokens=self.reasoning(body),
            cached_tokens=self._cache.cached_tokens(plain.model, texts),
        )

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A chat completion with the usage as the provider counts it."""
        return super().reply(ask, draft) | {"usage": self.usage(ask, draft)}

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """Chunks; if the usage was asked for, all have one, and only the last is not null."""
        events = super().events(ask, draft, pieces)
        if ask.stream_usage:
            for _, event in events:
                event["usage"] = None
            events[-1][1]["usage"] = self.usage(ask, draft)
        return events


class OpenAIReasoning(StrictChat):
    """Imitates `api.openai.com/v1/chat/completions` with a model of the GPT-5 class.

    Refuses a temperature other than 1, top_p, penalties, stop and log probabilities; max_tokens in
    favour of max_completion_tokens; unknown fields; schemas that strict mode does not allow.
    Reasoning comes out of max_completion_tokens: with too few the content is empty.
    """

    def check(self, body: Json, texts: Sequence[str]) -> None:
        """Raise Refusal with OpenAI's message, param and code."""
        for name in body:
            if name not in CHAT_FIELDS:
                raise openai_refusal(name, f"Unknown parameter: '{name}'.", "unknown_parameter")
        if body.get("max_tokens") is not None:
            raise unsupported("max_tokens", " Use 'max_completion_tokens' instead.")
        check_temperature(body.get("temperature"))
        for name in _WITHOUT_REASONING:
            if body.get(name) is not None:
                raise unsupported(name)
        check_effort(body.get("reasoning_effort"), "reasoning_effort")
        wanted = body.get("response_format") or {}
        if wanted.get("type") == "json_object" and not says_json(texts):
            raise openai_refusal(
                "response_format",
                "'messages' must contain the word 'json' in some form, to use 'response_format' of "
                "type 'json_object'.",
                None,
                param="messages",
            )
        if wanted.get("type") == "json_schema":
            form = wanted["json_schema"]
            check_strict_schema(form, f"response_format '{form['name']}'", "response_format")

    def reasoning(self, body: Json) -> int:
        """By effort."""
        return REASONING_TOKENS[body.get("reasoning_effort") or DEFAULT_EFFORT]


# --- OpenAI's refusals


def openai_refusal(
    parameter: str, message: str, code: str | None, *, param: str | None = None, status: int = 400
) -> Refusal:
    """An error as OpenAI writes it."""
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": param or parameter,
        "code": code,
    }
    return Refusal(parameter, {"error": error}, status)


def unsupported(name: str, hint: str = "") -> Refusal:
    """A parameter that the model does not have."""
    message = f"Unsupported parameter: '{name}' is not supported with this model.{hint}"
    return openai_refusal(name, message, "unsupported_parameter")


def check_temperature(given: Any) -> None:
    """Only the default of 1."""
    if given is not None and given != 1:
        raise openai_refusal(
            "temperature",
            f"Unsupported value: 'temperature' does not support {given} with this model. "
            "Only the default (1) value is supported.",
            "unsupported_value",
        )


def check_effort(given: Any, name: str) -> None:
    """One of the efforts."""
    if given is not None and given not in REASONING_TOKENS:
        allowed = ", ".join(f"'{each}'" for each in REASONING_TOKENS)
        raise openai_refusal(
            name,
            f"Unsupported value: '{name}' does not support '{given}' with this model. "
            f"Supported values are: {allowed}.",
            "unsupported_value",
        )


def check_strict_schema(form: Mapping[str, Any], where: str, parameter: str) -> None:
    """A strict schema names all properties as required and allows no others."""
    if not form.get("strict"):
        return
    for path, schema in subschemas(form["schema"]):
        if not is_object(schema):
            continue
        context = f"({', '.join(map(repr, path))}{',' if len(path) == 1 else ''})"
        problem = ""
        if schema.get("additionalProperties") is not False:
            problem = "'additionalProperties' is required to be supplied and to be false."
        missing = set(schema.get("properties") or ()) - set(schema.get("required") or ())
        if not problem and missing:
            problem = (
                "'required' is required to be supplied and to be an array including every key in "
                f"properties. Missing '{min(missing)}'."
            )
        if problem:
            message = f"Invalid schema for {where}: In context={context}, {problem}"
            raise openai_refusal(parameter, message, "invalid_json_schema")


# --- what a chat asks for


def _schema(body: Json, native: Json | None, texts: Sequence[str]) -> Json | None:
    if (body.get("response_format") or {}).get("type") == "json_schema":
        return native
    if isinstance(guided := body.get("guided_json"), dict):
        return guided
    return schema_in(texts) or native


def _tool(
    body: Json, chosen: tuple[str, Json] | None, texts: Sequence[str], *, answered: bool
) -> tuple[str, Json] | None:
    forced = isinstance(body.get("tool_choice"), dict) or body.get("tool_choice") in (
        "required",
        "any",
    )
    if forced or not body.get("tools"):
        return chosen
    if answered or body.get("tool_choice") == "none":
        return None
    functions = [tool.get("function", {}) for tool in body["tools"]]
    return answer_tool(
        [
            (each.get("name", ""), each.get("description", ""), each.get("parameters", {}))
            for each in functions
        ],
        texts,
    )
