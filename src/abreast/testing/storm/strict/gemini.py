"""Gemini's generateContent with a thinking model."""

from collections.abc import Iterator, Sequence
from json import loads
from typing import Any

from abreast.testing.storm.dialects.dialect import (
    Event,
    Json,
    Refusal,
    StormDraft,
    StormRequest,
    text_of,
)
from abreast.testing.storm.dialects.gemini import GeminiDialect
from abreast.testing.storm.strict.checks import (
    DEFAULT_EFFORT,
    REASONING_TOKENS,
    PrefixCache,
    answer_tool,
    names,
    reasoning_text,
    schema_in,
    sign,
    subschemas,
)

_FIELDS = names(
    "model contents tools toolConfig tool_config safetySettings safety_settings systemInstruction "
    "system_instruction generationConfig generation_config cachedContent cached_content labels "
    "serviceTier store"
)
_CONFIG_FIELDS = names(
    "stopSequences responseMimeType responseSchema responseJsonSchema responseModalities "
    "candidateCount maxOutputTokens temperature topP topK seed presencePenalty frequencyPenalty "
    "responseLogprobs logprobs thinkingConfig mediaResolution speechConfig imageConfig "
    "enableEnhancedCivicAnswers"
)
_PART_FIELDS = names(
    "text inlineData inline_data fileData file_data functionCall functionResponse thought "
    "thoughtSignature thought_signature executableCode codeExecutionResult videoMetadata "
    "mediaResolution partMetadata"
)
_FUNCTION_FIELDS = names(
    "name description parameters parametersJsonSchema response responseJsonSchema behavior"
)
# The subset of OpenAPI that responseSchema and parameters are in.
_SCHEMA_WORDS = names(
    "type format title description nullable enum maxItems minItems properties required "
    "minProperties maxProperties minLength maxLength pattern example anyOf propertyOrdering "
    "default items minimum maximum"
)


# Google's own word for a call that another model made.
_SKIPPED_SIGNATURE = "skip_thought_signature_validator"


class StrictGemini(GeminiDialect):
    """Imitates `generativelanguage.googleapis.com/v1beta` with a model of the Gemini 3 class.

    Refuses unknown names at every place, JSON Schema in `responseSchema` and `parameters` (it has
    `responseJsonSchema` and `parametersJsonSchema`), and a function call of the current turn that
    comes back without its `thoughtSignature`; of several at once, the first has it. Thinking comes
    out of maxOutputTokens: with too few, the candidate ends by MAX_TOKENS without parts. Counts
    thoughts and cached tokens on their own.
    """

    def __init__(self) -> None:
        self._cache = PrefixCache()

    # --- reading

    def ask(self, body: Json, model: str, *, stream: bool) -> StormRequest:
        """Read a request; raises Refusal for one that Gemini refuses."""
        plain = super().ask(body, model, stream=stream)
        try:
            _check(body)
        except Refusal as refusal:
            refusal.model = model
            raise
        config = body.get("generationConfig") or {}
        thinking = config.get("thinkingConfig") or {}
        system = body.get("systemInstruction") or body.get("system_instruction") or {}
        texts = [text_of(each.get("parts")) for each in (system, *body["contents"])]
        schema = plain.schema if config.get("responseMimeType") == "application/json" else None
        return plain._replace(
            schema=schema or schema_in(texts),
            tool=_tool(body, plain.tool, texts),
            reasoning_tokens=_thoughts(thinking),
            cached_tokens=self._cache.cached_tokens(model, texts),
            shows_reasoning=bool(thinking.get("includeThoughts")),
        )

    # --- writing

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """One candidate."""
        return self._strict_frame(ask, draft, draft.text, first=True, last=True)

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """Replies with a piece each; the last one says why it ended."""
        if draft.tool or draft.finish == "refusal" or not pieces:
            return [("", self.reply(ask, draft))]
        last = len(pieces) - 1
        return [
            ("", self._strict_frame(ask, draft, piece, first=at == 0, last=at == last))
            for at, piece in enumerate(pieces)
        ]

    def _strict_frame(
        self, ask: StormRequest, draft: StormDraft, text: str, *, first: bool, last: bool
    ) -> Json:
        parts: list[Json] = []
        if first and ask.shows_reasoning and draft.reasoning_tokens:
            parts.append({"text": reasoning_text(ask), "thought": True})
        if draft.tool and draft.finish == "tool":
            call = {"name": draft.tool, "args": loads(text), "id": f"storm{draft.number}"}
            part: Json = {"functionCall": call}
            if draft.reasoning_tokens:
                part["thoughtSignature"] = _signature(call)
            parts.append(part)
        elif text:
            parts.append({"text": text})
        content: Json = {"role": "model"} | ({"parts": parts} if parts else {})
        candidate: Json = {"content": content, "index": 0}
        if last:
            reasons = {"length": "MAX_TOKENS", "refusal": "SAFETY"}
            candidate["finishReason"] = reasons.get(draft.finish, "STOP")
        if draft.finish == "refusal":
            del candidate["content"]
        return {
            "candidates": [candidate],
            "usageMetadata": _usage(ask, draft),
            "modelVersion": ask.model,
            "responseId": f"storm{draft.number}",
        }


def _usage(ask: StormRequest, draft: StormDraft) -> Json:
    """The candidates' tokens are without the thoughts; the prompt's include the cached ones."""
    usage: Json = {
        "promptTokenCount": draft.input_tokens,
        "totalTokenCount": draft.input_tokens + draft.output_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": draft.input_tokens}],
    }
    if said := draft.output_tokens - draft.reasoning_tokens:
        usage["candidatesTokenCount"] = said
    if draft.reasoning_tokens:
        usage["thoughtsTokenCount"] = draft.reasoning_tokens
    if ask.cached_tokens:
        usage["cachedContentTokenCount"] = ask.cached_tokens
    return usage


def _thoughts(thinking: Json) -> int:
    if "thinkingLevel" in thinking:
        return REASONING_TOKENS[str(thinking["thinkingLevel"]).lower()]
    budget = int(thinking.get("thinkingBudget", -1))
    default = REASONING_TOKENS[DEFAULT_EFFORT]
    return default if budget < 0 else min(budget, default)


def _signature(call: Json) -> str:
    return sign(call["name"], call.get("args") or {})


# --- refusals


def _check(body: Json) -> None:
    unknown = [*_unknown_names(body)]
    if unknown:
        raise _unknown(unknown)
    for position, call, signature in _calls_of_this_turn(body["contents"]):
        if not signature:
            raise _refused(
                "thoughtSignature",
                "Function call is missing a thought_signature in functionCall parts. This is "
                "required for tools to work correctly, and missing thought_signature may lead to "
                f"degraded model performance. Additional data, function call "
                f"`default_api:{call.get('name')}` , position {position}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
            )
        if signature not in (_signature(call), _SKIPPED_SIGNATURE):
            raise _refused("thoughtSignature", "Corrupted thought signature.")


def _calls_of_this_turn(contents: Sequence[Json]) -> Iterator[tuple[int, Json, str]]:
    """The first function call of each step since the user spoke, and its signature."""
    spoken = [
        at
        for at, content in enumerate(contents)
        if content.get("role", "user") == "user" and text_of(content.get("parts"))
    ]
    for position, content in enumerate(contents, 1):
        for part in content.get("parts") or ():
            if position > max(spoken, default=0) + 1 and "functionCall" in part:
                signature = part.get("thoughtSignature") or part.get("thought_signature") or ""
                yield position, part["functionCall"], signature
                break


def _unknown_names(body: Json) -> Iterator[tuple[str, str]]:
    """Every name that is not known, with its place."""
    yield from (("", name) for name in body if name not in _FIELDS)
    config = body.get("generationConfig") or {}
    yield from (("generation_config", name) for name in config if name not in _CONFIG_FIELDS)
    yield from _words_outside(config.get("responseSchema"), "generation_config.response_schema")
    for at, content in enumerate(body["contents"]):
        for number, part in enumerate(content.get("parts") or ()):
            place = f"contents[{at}].parts[{number}]"
            yield from ((place, name) for name in part if name not in _PART_FIELDS)
    for at, tool in enumerate(body.get("tools") or ()):
        for number, each in enumerate(tool.get("functionDeclarations") or ()):
            place = f"tools[{at}].function_declarations[{number}]"
            yield from ((place, name) for name in each if name not in _FUNCTION_FIELDS)
            yield from _words_outside(each.get("parameters"), f"{place}.parameters")


def _words_outside(schema: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(schema, dict):
        for path, each in subschemas(schema):
            inner = ".".join((place, *path))
            yield from ((inner, name) for name in each if name not in _SCHEMA_WORDS)


def _unknown(found: Sequence[tuple[str, str]]) -> Refusal:
    head = "Invalid JSON payload received. Unknown name"
    lines = [
        (place, f'{head} "{name}"{f" at {place!r}" if place else ""}: Cannot find field.')
        for place, name in found
    ]
    violations = [
        {**({"field": place} if place else {}), "description": line} for place, line in lines
    ]
    details = [
        {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}
    ]
    return _refused(found[0][1], "\n".join(line for _, line in lines), details)


def _refused(parameter: str, message: str, details: list[Json] | None = None) -> Refusal:
    error: Json = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return Refusal(parameter, {"error": error | ({"details": details} if details else {})})


def _tool(
    body: Json, chosen: tuple[str, Json] | None, texts: Sequence[str]
) -> tuple[str, Json] | None:
    config = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    if config.get("mode") == "ANY":
        functions = _functions(body)
        named = config.get("allowedFunctionNames") or [name for name, _, _ in functions]
        return next(((name, schema) for name, _, schema in functions if name in named), chosen)
    last = body["contents"][-1].get("parts") or ()
    if config.get("mode") == "NONE" or any("functionResponse" in part for part in last):
        return None
    return answer_tool(_functions(body), texts)


def _functions(body: Json) -> list[tuple[str, str, Json]]:
    return [
        (
            each.get("name", ""),
            each.get("description", ""),
            each.get("parametersJsonSchema") or each.get("parameters") or {},
        )
        for tool in body.get("tools") or ()
        for each in tool.get("functionDeclarations") or ()
    ]
