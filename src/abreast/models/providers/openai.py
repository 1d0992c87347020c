"""OpenAI's chat completions, which mistral, deepseek, ollama and vLLM serve too."""

from typing import Unpack

from abreast.models.chat_form import (
    ToolCallDraft,
    message_form,
    present,
    tool_choice_form,
    tools_form,
)
from abreast.models.http.client import HttpClient, HttpOptions
from abreast.models.lanes import LaneSettings, Structured
from abreast.models.port import ANY_TOOL, Finish, Message, Request, ToolCall
from abreast.models.providers.accepted_form import STRUCTURED_WAYS, AcceptedForm
from abreast.models.providers.provider import (
    ANSWER_TOOL,
    Document,
    EventFold,
    Provider,
    answer_tool,
    schema_in_words,
    take_answer,
    ways_from,
)
from abreast.models.providers.reply_draft import ReplyDraft, count
from abreast.models.providers.thinking import (
    Kept,
    kept_of,
    output_bound,
    turn_parts,
    unbounded_thinking,
)
from abreast.models.schema import boxed, strict

_FINISH: dict[str | None, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refused",
}
_OPENROUTER, _DEEPSEEK = "openrouter.ai", "api.deepseek.com"  # with fields of their own
_FILTERED = "a content filter stopped it"


class OpenAI(Provider):
    """A model behind an endpoint of chat completions.

    The options describe how an endpoint differs: `max_tokens` and `seed` are its names for these
    (None if it has no seeds); `stream_usage` and `done` are whether it reports the usage of a
    stream, and ends streams by `[DONE]`; `structured` is the first way to try to get a value by a
    schema ("json_object" and "none" put it into the system prompt). What the endpoint refuses is
    learned beside that.

        url = "https://api.mistral.ai/v1"
        model = OpenAI("mistral/mistral-small", url, key, max_tokens="max_tokens")
        reply = await model.complete(Request((Message("user", "Hello"),)))
    """

    def __init__(
        self,
        name: str,
        base_url: str = "https://api.openai.com/v1",
        key: str | None = None,
        *,
        max_tokens: str = "max_completion_tokens",
        seed: str | None = "seed",
        structured: Structured = "json_schema",
        stream_usage: bool = True,
        done: bool = True,
        form: AcceptedForm | None = None,
        lane: LaneSettings | None = None,
        **wire: Unpack[HttpOptions],
    ) -> None:
        http = HttpClient(name, {"authorization": f"Bearer {key}"} if key else {}, **wire)
        path, mark, query = base_url.partition("?")
        super().__init__(
            name,
            http,
            f"{path.rstrip('/')}/chat/completions{mark}{query}",
            ways=ways_from(structured, STRUCTURED_WAYS),
            form=form,
            lane=lane,
        )
        self._max_tokens = max_tokens
        self._seed = seed
        self._stream_usage = stream_usage
        self.ends_by_marker = done
        self._family = name.partition("/")[0]  # whose kept thinking is sent back

    def write(self, request: Request, *, stream: bool) -> Document:
        """The body of a request."""
        system = self._system(request)
        messages = [{"role": "system", "content": system}] if system else []
        messages += [self._turn(each) for each in request.messages]
        body: Document = {"model": self.model, "messages": messages}
        # One by one: a request of many calls has few of them, and a table of all takes 3 us more.
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.stop:
            body["stop"] = request.stop
        if (wanted := self._format(request)) is not None:
            body["response_format"] = wanted
        body |= self._tools(request)
        if (bound := output_bound(request)) is not None:
            body[self._max_tokens] = bound
        if self._seed and request.seed is not None:
            body[self._seed] = request.seed
        body |= self._effort(request)
        body |= request.extra
        if stream:
            usage = {"include_usage": True} if self._stream_usage else None
            body |= present(stream=True, stream_options=usage)
        return body

    def _tools(self, request: Request) -> Document:
        """The tools of a request and which of them must be called; that of a schema is added."""
        tools = tools_form(request)
        if request.tool_choice is not None:
            return present(tools=tools, tool_choice=tool_choice_form(request.tool_choice))
        if request.schema is not None and self.way(request) == "tool":
            own = {"type": "function", "function": answer_tool(request.schema)}
            choice = tool_choice_form(ANY_TOOL if request.tools else ANSWER_TOOL)
            return {"tools": [*(tools or ()), own], "tool_choice": choice}
        return {} if tools is None else {"tools": tools}

    def _turn(self, message: Message) -> Document:
        form = message_form(message)
        if message.tool_calls:
            form |= {"content": message.content or None, **self._thought(message)}
        return form

    def unsent(self, request: Request) -> tuple[str, ...]:
        """What the endpoint has no field for."""
        return () if self._url.host == _OPENROUTER else unbounded_thinking(request)

    def kept_thought(self, text: str | None) -> Kept:
        """What a turn keeps of the thinking that it has beside its text."""
        return kept_of(self._family, [{"item": {"reasoning_content": text}}] if text else ())

    def _thought(self, message: Message) -> Document:
        """The thinking of a turn that calls tools, which DeepSeek refuses to go without."""
        return {
            name: value
            for _, fields in turn_parts(message, self._family)
            for name, value in fields.items()
        }

    def _effort(self, request: Request) -> Document:
        effort, tokens = request.reasoning, request.thinking_tokens
        if effort is None and tokens is None:
            return {}
        if self._url.host == _OPENROUTER:  # it takes one of the two
            bound = present(effort=effort) if tokens is None else {"max_tokens": tokens}
            return {"reasoning": bound} if bound else {}
        if effort == "none" and self._url.host == _DEEPSEEK:
            return {"thinking": {"type": "disabled"}}
        return present(reasoning_effort=effort)

    def read(self, document: Document, request: Request) -> ReplyDraft:
        """Read a chat completion."""
        choice = document["choices"][0]
        message = choice["message"]
        content = message.get("content")
        draft = ReplyDraft(
            content if type(content) is str else _text(content),
            tuple(
                ToolCall(
                    call.get("id") or "",
                    call["function"]["name"],
                    call["function"].get("arguments") or "",
                )
                for call in message.get("tool_calls") or ()
            ),
            _FINISH.get(choice.get("finish_reason"), "other"),
            message.get("refusal") or "",
            model=document.get("model") or "",
            id=document.get("id") or "",
        )
        draft.kept = self.kept_thought(message.get("reasoning_content"))
        _count(draft, document.get("usage"))
        return _finalize(draft, request)

    def fold(self, request: Request) -> EventFold:
        """A reader for the chunks of a stream."""
        return _Chunks(self, request)

    def _system(self, request: Request) -> str | None:
        if self.way(request) in ("json_object", "none"):
            return "\n\n".join(filter(None, (request.system, schema_in_words(request))))
        return request.system

    def _format(self, request: Request) -> Document | None:
        if request.schema is None or (way := self.way(request)) in ("tool", "none"):
            return None
        if way == "json_object":
            return {"type": "json_object"}
        whole = boxed(request.schema).schema
        form = strict(whole)
        wanted = {
            "name": "reply",
            "schema": whole if form is None else form,
            "strict": form is not None,
        }
        return {"type": "json_schema", "json_schema": wanted}


class _Chunks(EventFold):
    def __init__(self, model: OpenAI, request: Request) -> None:
        super().__init__(streams_text=request.schema is None or not boxed(request.schema).boxed)
        self._request = request
        self._model = model
        self._refusal: list[str] = []
        self._thought: list[str] = []
        self._calls: dict[int, ToolCallDraft] = {}

    def take(self, event: Document) -> str:
        """Add a chunk."""
        draft = self.draft
        draft.model = event.get("model") or draft.model
        draft.id = event.get("id") or draft.id
        _count(draft, event.get("usage"))
        for choice in event["choices"][:1]:
            self.begun = True
            piece = self._delta(choice.get("delta") or {})
            if choice.get("finish_reason"):
                draft.finish = _FINISH.get(choice["finish_reason"], "other")
                self.ended = self.ended or not self._model.ends_by_marker
            return piece
        return ""

    def finished(self) -> ReplyDraft:
        """The complete reply."""
        draft = EventFold.finished(self)
        draft.refusal = "".join(self._refusal)
        draft.kept = self._model.kept_thought("".join(self._thought))
        draft.tool_calls = tuple(call.tool_call() for _, call in sorted(self._calls.items()))
        return _finalize(draft, self._request)

    def _delta(self, delta: Document) -> str:
        for number, part in enumerate(delta.get("tool_calls") or ()):
            self._calls.setdefault(part.get("index", number), ToolCallDraft()).add(part)
        self._refusal.append(delta.get("refusal") or "")
        self._thought.append(delta.get("reasoning_content") or "")
        return _text(delta.get("content"))


def _text(content: object) -> str:
    """The text of a content: some endpoints send it in parts, not all of which are text."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if part.get("type") == "text")
    raise TypeError("a content is a text")


def _count(draft: ReplyDraft, usage: Document | None) -> None:
    if usage:
        draft.input_tokens = count(usage.get("prompt_tokens"))
        draft.output_tokens = count(usage.get("completion_tokens"))
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        if cached is None:  # as DeepSeek names it
            cached = usage.get("prompt_cache_hit_tokens")
        draft.cached_input_tokens = count(cached) or 0
        details = usage.get("completion_tokens_details") or {}
        draft.reasoning_tokens = thought = count(details.get("reasoning_tokens")) or 0
        sent, said = draft.input_tokens, draft.output_tokens
        # Some count reasoning apart from the completion, as xAI does: their total tells.
        if thought and sent is not None and said is not None:
            apart = count(usage.get("total_tokens")) == sent + said + thought
            draft.output_tokens = said + thought if apart else said


def _finalize(draft: ReplyDraft, request: Request) -> ReplyDraft:
    if request.schema is not None:
        take_answer(draft, request.schema)
    if draft.finish == "refused" and not draft.refusal:
        draft.refusal = _FILTERED
    if draft.tool_calls and draft.finish == "stop":
        draft.finish = "tool_calls"
    if not draft.tool_calls:
        draft.kept = ()  # only turns that call tools keep their thinking
    return draft
