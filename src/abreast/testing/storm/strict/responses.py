"""OpenAI's Responses API with a reasoning model."""

from collections.abc import Sequence

from abreast.testing.storm.dialects.dialect import (
    Event,
    Json,
    Refusal,
    StormDraft,
    StormRequest,
    count_tokens,
    key_of,
    token_bound,
)
from abreast.testing.storm.dialects.openai import OpenAIDialect
from abreast.testing.storm.strict.checks import (
    DEFAULT_EFFORT,
    REASONING_TOKENS,
    PrefixCache,
    answer_tool,
    schema_in,
    sign,
)
from abreast.testing.storm.strict.openai import (
    openai_refusal,
)
from abreast.testing.storm.strict.responses_input import (
    alone,
    check_fields,
    check_output,
    item_text,
    read_items,
    texts_of,
)

_ENCRYPTED = "reasoning.encrypted_content"


class Responses:
    """Imitates `api.openai.com/v1/responses` with a model of the GPT-5 class.

    Refuses unknown fields, names of chat completions, temperature and top_p, fewer than 16 output
    tokens, schemas that strict mode does not allow, and a history that is not whole: a function
    call without the reasoning that it came with, reasoning without what followed it, an output
    without its call, and stored items when `store` is false. Reasoning comes out of
    max_output_tokens: with too few, the response is incomplete and has no message.
    """

    lane = "openai"
    done = ""

    def __init__(self) -> None:
        self._cache = PrefixCache()
        self._reasons: dict[str, str] = {}  # the id of the reasoning before a call, by call_id
        self._stored: set[str] = set()  # the ids of reasoning that a later request may refer to

    # --- reading

    def ask(self, body: Json, model: str, *, stream: bool) -> StormRequest:  # noqa: ARG002 - the body says both
        """Read a request; raises Refusal for one that OpenAI refuses."""
        name = str(body.get("model", ""))
        try:
            check_fields(body)
            check_output(body)
            items = read_items(body)
            self._check_history(items)
        except Refusal as refusal:
            refusal.model = name
            raise
        texts = texts_of(body)
        users = [
            item_text(item)
            for item in items
            if item.get("role") == "user" and item.get("type", "message") == "message"
        ]
        effort = (body.get("reasoning") or {}).get("effort") or DEFAULT_EFFORT
        return StormRequest(
            name,
            users[-1] if users else texts[-1],
            key_of(name, None, texts),
            sum(map(count_tokens, texts)),
            token_bound(body.get("max_output_tokens"), "max_output_tokens"),
            stream=body.get("stream") is True,
            schema=_schema(body, texts),
            tool=_tool(body, items, texts),
            reasoning_tokens=REASONING_TOKENS[effort],
            cached_tokens=self._cache.cached_tokens(name, texts),
            shows_reasoning=_ENCRYPTED in (body.get("include") or ()),
            stores=body.get("store") is not False,
        )

    def _check_history(self, items: Sequence[Json]) -> None:
        calls: set[str] = set()
        before: Json = {}
        for item in items:
            kind, number = item.get("type", "message"), str(item.get("id", ""))
            if before.get("type") == "reasoning" and kind == "function_call_output":
                raise alone(before)
            if kind == "reasoning":
                self._check_reasoning(item)
            elif kind == "function_call":
                calls.add(item["call_id"])
                needed = self._reasons.get(item["call_id"])
                if needed is not None and needed not in [each.get("id") for each in items]:
                    raise openai_refusal(
                        "input",
                        f"Item '{number or item['call_id']}' of type 'function_call' was provided "
                        f"without its required 'reasoning' item: '{needed}'.",
                        None,
                    )
            elif kind == "function_call_output" and item["call_id"] not in calls:
                raise openai_refusal(
                    "input",
                    f"No tool call found for function call output with call_id {item['call_id']}.",
                    None,
                )
            before = item
        if before.get("type") == "reasoning":
            raise alone(before)
        answered = {each["call_id"] for each in items if each.get("type") == "function_call_output"}
        if missing := sorted(calls - answered):
            message = f"No tool output found for function call {missing[0]}."
            raise openai_refusal("input", message, None)

    def _check_reasoning(self, item: Json) -> None:
        number, sealed = str(item.get("id", "")), item.get("encrypted_content")
        if sealed is not None and sealed != sign(number):
            raise openai_refusal(
                "input",
                f"The encrypted content for item {number} could not be verified.",
                "invalid_encrypted_content",
                param=None,
            )
        if sealed is None and number not in self._stored:
            raise openai_refusal(
                "input",
                f"Item with id '{number}' not found. Items are not persisted when `store` is set "
                "to false. Try again with `store` set to true, or remove this item from your "
                "input.",
                None,
                status=404,
            )

    # --- writing

    def reply(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A response with its items."""
        output = self._output(ask, draft)
        cut = draft.finish == "length"
        return _frame(ask, draft) | {
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": output,
            "usage": _usage(ask, draft),
        }

    def empty(self, ask: StormRequest, draft: StormDraft) -> Json:
        """A response without items."""
        return _frame(ask, draft) | {"status": "completed", "usage": _usage(ask, draft)}

    def events(self, ask: StormRequest, draft: StormDraft, pieces: Sequence[str]) -> list[Event]:
        """The events of a stream, from response.created to response.completed or .incomplete."""
        whole = self.reply(ask, draft)
        started = _frame(ask, draft) | {"status": "in_progress", "usage": None}
        events: list[Json] = [
            {"type": "response.created", "response": started},
            {"type": "response.in_progress", "response": started},
        ]
        for index, item in enumerate(whole["output"]):
            place = {"output_index": index}
            begun = item | {"status": "in_progress"}
            begun |= {"content": []} if item["type"] == "message" else {}
            begun |= {"arguments": ""} if item["type"] == "function_call" else {}
            events.append({"type": "response.output_item.added", **place, "item": begun})
            where = {"item_id": item["id"], **place}
            if item["type"] == "message":
                events += _message_events(item["content"][0], where, pieces)
            elif item["type"] == "function_call":
                kind = "response.function_call_arguments"
                events += [{"type": f"{kind}.delta", **where, "delta": each} for each in pieces]
                events.append({"type": f"{kind}.done", **where, "arguments": item["arguments"]})
            events.append({"type": "response.output_item.done", **place, "item": item})
        events.append({"type": f"response.{whole['status']}", "response": whole})
        return [(event["type"], event | {"sequence_number": at}) for at, event in enumerate(events)]

    def error(self, status: int, kind: str, message: str, retry_after: str | None) -> Json:
        """An error as chat completions have it."""
        return OpenAIDialect().error(status, kind, message, retry_after)

    def _output(self, ask: StormRequest, draft: StormDraft) -> list[Json]:
        output: list[Json] = []
        reason = f"rs_storm{draft.number}"
        status = "incomplete" if draft.finish == "length" else "completed"
        if draft.reasoning_tokens:
            sealed = {"encrypted_content": sign(reason)} if ask.shows_reasoning else {}
            output.append({"id": reason, "type": "reasoning", "summary": [], **sealed})
            if ask.stores:
                self._stored.add(reason)
        if draft.tool:
            call = f"call_storm{draft.number}"
            if draft.reasoning_tokens:
                self._reasons[call] = reason
            output.append(
                {
                    "id": f"fc_storm{draft.number}",
                    "type": "function_call",
                    "status": status,
                    "call_id": call,
                    "name": draft.tool,
                    "arguments": draft.text,
                }
            )
        elif draft.text:
            refused = draft.finish == "refusal"
            part: Json = (
                {"type": "refusal", "refusal": draft.text}
                if refused
                else {"type": "output_text", "text": draft.text, "annotations": [], "logprobs": []}
            )
            output.append(
                {
                    "id": f"msg_storm{draft.number}",
                    "type": "message",
                    "status": status,
                    "role": "assistant",
                    "content": [part],
                }
            )
        return output


def _frame(ask: StormRequest, draft: StormDraft) -> Json:
    return {
        "id": f"resp_storm{draft.number}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": ask.model,
        "output": [],
        "parallel_tool_calls": True,
        "store": ask.stores,
        "usage": None,
    }


def _usage(ask: StormRequest, draft: StormDraft) -> Json:
    return {
        "input_tokens": draft.input_tokens,
        "input_tokens_details": {"cached_tokens": ask.cached_tokens},
        "output_tokens": draft.output_tokens,
        "output_tokens_details": {"reasoning_tokens": draft.reasoning_tokens},
        "total_tokens": draft.input_tokens + draft.output_tokens,
    }


def _message_events(part: Json, where: Json, pieces: Sequence[str]) -> list[Json]:
    place = {**where, "content_index": 0}
    refused = part["type"] == "refusal"
    field = "refusal" if refused else "text"
    kind = "response.refusal" if refused else "response.output_text"
    return [
        {"type": "response.content_part.added", **place, "part": part | {field: ""}},
        *({"type": f"{kind}.delta", **place, "delta": piece} for piece in pieces),
        {"type": f"{kind}.done", **place, field: part[field]},
        {"type": "response.content_part.done", **place, "part": part},
    ]


def _schema(body: Json, texts: Sequence[str]) -> Json | None:
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        schema: Json = form["schema"]
        return schema
    return schema_in(texts) or ({"type": "object"} if form.get("type") == "json_object" else None)


def _tool(body: Json, items: Sequence[Json], texts: Sequence[str]) -> tuple[str, Json] | None:
    choice = body.get("tool_choice")
    functions = [
        (each.get("name", ""), each.get("description") or "", each.get("parameters") or {})
        for each in body.get("tools") or ()
        if each.get("type") == "function"
    ]
    if isinstance(choice, dict) or choice == "required":
        named = choice.get("name") if isinstance(choice, dict) else None
        return next((one[::2] for one in functions if named in (None, one[0])), None)
    if choice == "none" or items[-1].get("type") == "function_call_output":
        return None
    return answer_tool(functions, texts)
