"""The requests of the Responses API: what it refuses, and the items of its input."""

from typing import Any

from abreast.testing.storm.dialects.dialect import BadRequest, Json, Refusal, required_list, text_of
from abreast.testing.storm.strict.checks import names, says_json
from abreast.testing.storm.strict.openai import (
    check_effort,
    check_strict_schema,
    openai_refusal,
    unsupported,
)

_FIELDS = names(
    "model input instructions max_output_tokens metadata parallel_tool_calls previous_response_id "
    "prompt prompt_cache_key prompt_cache_retention reasoning safety_identifier service_tier store "
    "stream stream_options temperature text tool_choice tools top_p top_logprobs truncation user "
    "include background conversation max_tool_calls context_management client_metadata"
)
# Names of chat completions that have another name here.
_MOVED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
_ITEM_FIELDS = {
    "message": {"type", "id", "status", "role", "content", "phase"},
    "reasoning": {"type", "id", "status", "summary", "content", "encrypted_content"},
    "function_call": {"type", "id", "status", "call_id", "name", "arguments", "namespace"},
    "function_call_output": {"type", "id", "status", "call_id", "output"},
}
_PARTS = {"assistant": ("output_text", "refusal")}
_USER_PARTS = ("input_text", "input_image", "input_file")
_NESTED_FIELDS = {
    "reasoning": {"effort", "summary", "generate_summary", "context", "mode"},
    "text": {"format", "verbosity"},
    "text.format": {"type", "name", "schema", "strict", "description"},
}
_MIN_OUTPUT_TOKENS = 16


def check_fields(body: Json) -> None:
    """Refuse fields that are unknown, that moved, or that the model does not have."""
    for name in body:
        if name in _MOVED:
            raise openai_refusal(
                name,
                f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved "
                f"to '{_MOVED[name]}'. Try again with the new parameter. See the API documentation "
                "for more information: https://platform.openai.com/docs/api-reference/responses/"
                "create.",
                "unsupported_parameter",
            )
        if name not in _FIELDS:
            raise _unknown(name)
    text = body.get("text") or {}
    reasoning = body.get("reasoning") or {}
    nested = {"reasoning": reasoning, "text": text, "text.format": text.get("format") or {}}
    for place, fields in nested.items():
        for name in fields:
            if name not in _NESTED_FIELDS[place]:
                raise _unknown(f"{place}.{name}")
    for name in ("temperature", "top_p"):
        if body.get(name) is not None:
            raise unsupported(name)
    check_effort(reasoning.get("effort"), "reasoning.effort")


def check_output(body: Json) -> None:
    """Refuse tools, bounds and formats that are not as they have to be."""
    for number, tool in enumerate(body.get("tools") or ()):
        if tool.get("type") == "function" and "name" not in tool:
            raise _missing(f"tools[{number}].name", "tools")
    limit = body.get("max_output_tokens")
    if limit is not None and limit < _MIN_OUTPUT_TOKENS:
        raise openai_refusal(
            "max_output_tokens",
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= "
            f"{_MIN_OUTPUT_TOKENS}, but got {limit} instead.",
            "integer_below_min_value",
        )
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        for name in ("name", "schema"):
            if name not in form:
                raise _missing(f"text.format.{name}", "text.format")
        where = f"text.format '{form['name']}'"
        check_strict_schema({"strict": True} | form, where, "text.format")
    if form.get("type") == "json_object" and not says_json(texts_of(body)):
        raise openai_refusal(
            "text.format",
            "Response input messages must contain the word 'json' in some form to use "
            "'text.format' of type 'json_object'.",
            None,
            param="input",
        )


def read_items(body: Json) -> list[Json]:
    """The input as a list of items, each of them checked."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    items = required_list(body, "input")
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        if kind not in _ITEM_FIELDS:
            raise BadRequest(f"Invalid value: '{kind}'.")
        for name in item:
            if name not in _ITEM_FIELDS[kind]:
                raise _unknown(f"input[{at}].{name}")
        if kind == "message" and isinstance(item.get("content"), list):
            allowed = _PARTS.get(item.get("role", ""), _USER_PARTS)
            for number, part in enumerate(item["content"]):
                if part.get("type") not in allowed:
                    values = ", ".join(f"'{each}'" for each in allowed[:-1])
                    raise openai_refusal(
                        "input",
                        f"Invalid value: '{part.get('type')}'. Supported values are: {values} and "
                        f"'{allowed[-1]}'.",
                        "invalid_value",
                        param=f"input[{at}].content[{number}]",
                    )
    return items


def _unknown(name: str) -> Refusal:
    return openai_refusal(name, f"Unknown parameter: '{name}'.", "unknown_parameter")


def _missing(name: str, parameter: str) -> Refusal:
    message = f"Missing required parameter: '{name}'."
    return openai_refusal(parameter, message, "missing_required_parameter", param=name)


def alone(item: Json) -> Refusal:
    """Reasoning that nothing follows."""
    return openai_refusal(
        "input",
        f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following "
        "item.",
        None,
    )


def texts_of(body: Json) -> list[str]:
    """The instructions, and the text of each item."""
    given: Any = body.get("input")
    inputs = [given] if isinstance(given, str) else [item_text(each) for each in given or ()]
    return [str(body.get("instructions") or ""), *inputs]


def item_text(item: Json) -> str:
    """The text of a message, or of the output of a function."""
    kind = item.get("type", "message")
    if kind == "message":
        return text_of(item.get("content"))
    return text_of(item.get("output")) if kind == "function_call_output" else ""
