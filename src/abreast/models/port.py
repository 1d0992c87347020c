"""The model port: a request goes in, a reply comes out. Wrappers implement the same protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeAlias, TypeVar, get_args

from abreast.core.frozen import later, record
from abreast.core.outcome import NO_USAGE, Usage
from abreast.models.media import MediaFile

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    V = DefaultTypeVar("V", default=Json)
    V_co = DefaultTypeVar("V_co", default=Json, covariant=True)
else:  # the defaults are for type checkers; `typing` has them from 3.13 on
    V = TypeVar("V")
    V_co = TypeVar("V_co", covariant=True)
"""The type of a reply's value: JSON, or the pydantic model that was given as `schema`."""
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
Finish: TypeAlias = Literal["stop", "length", "tool_calls", "refused", "other"]
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: Final[tuple[Effort, ...]] = get_args(Effort)
THINKING_OPTIONS: Final = ("reasoning", "thinking_tokens")
"""Options of calls that records leave out unless they are set."""
OnText: TypeAlias = Callable[[str], object]
"""Called with each piece of text as it arrives; passing one makes a call stream."""
ANY_TOOL: Final = "*"
"""The `tool_choice` of a reply that must call a tool, whichever; no tool has such a name."""
SHORT_REPLY_TOKENS: Final = 1024
"""The `max_tokens` for a reply of a word or two; reasoning tokens count against it too."""


@record(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model requests; it is passed through, never executed here."""

    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""


@record(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    """`system`, `user`, `assistant` or `tool`."""
    content: str
    """Its text."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an `assistant` turn: the calls that it asks for."""
    tool_call_id: str | None = None
    """Of a `tool` turn: the call that it answers."""
    kept: tuple[Mapping[str, Json], ...] = later(())
    """Of an `assistant` turn: `Reply.kept`, which is sent back to the provider that gave it."""
    files: tuple[MediaFile, ...] = later(())
    """Of a user's turn: images and PDF files, which stand before its text."""


@record(frozen=True, slots=True)
class Request:
    """Everything that determines a reply. Equal requests to one model are the same question."""

    messages: tuple[Message, ...]
    """The conversation; its last turn is to be answered."""
    system: str | None = None
    """The system prompt."""
    temperature: float | None = None
    """How freely to choose; the provider's default if None."""
    seed: int | None = None
    """For providers that take one."""
    stop: tuple[str, ...] = ()
    """Texts at which to end."""
    max_tokens: int | None = None
    """The longest reply."""
    schema: Mapping[str, Json] | None = None
    """A JSON schema that the reply must obey; its value is then in `Reply.value`."""
    tools: tuple[Mapping[str, Json], ...] = ()
    """Each with `name`, `description` and `parameters` (a JSON schema)."""
    extra: Mapping[str, Json] = field(default_factory=dict)
    """Further fields for the provider's own body, as it names them."""
    reasoning: Effort | None = later(None)
    """How much to think before the answer; the model's default if None."""
    thinking_tokens: int | None = later(None)
    """The most tokens to think with, beside `max_tokens` for the answer."""
    shared_prefix: int | None = later(None, compare=False)
    """Characters at the start of the last message that other requests have too.

    The provider is asked to cache them, and the system prompt; the reply does not depend on it.
    """
    keeps_bound: bool = later(default=False, compare=False)
    """Fail with `CallFailed.lost_bound` rather than go without the `max_tokens` of a budget."""
    tool_choice: str | None = later(None)
    """The tool that the reply must call, by its name, or `*` for any of `tools`.

    The model decides if None.
    """


@record(frozen=True, slots=True)
class Reply(Generic[V_co]):
    """The reply of a model; a `Reply[Recipe]` was asked with `schema=Recipe`."""

    text: str
    """What the model wrote."""
    value: V_co = None  # type: ignore[assignment]  # without a schema
    """If a schema was asked for: the JSON of the text, or an instance of the pydantic model."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls that the model asks for; they are never carried out here."""
    usage: Usage = NO_USAGE
    """What it used."""
    finish: Finish = "stop"
    """Why it ended: `stop`, `length`, `tool_calls`, `refused` or `other`."""
    model: str = ""
    """The model as its provider names it, which may be more specific than the requested name."""
    id: str = ""
    """The provider's id of it."""
    seconds: float = 0.0
    """The service time of this one attempt, without any waiting before it."""
    first_token: float | None = None
    """Seconds until the first piece of text; None for a reply that did not stream."""
    headers: Mapping[str, str] | None = field(default=None, compare=False, repr=False)
    """Response headers, with names in lower case; the lane reads the rate limits from them.

    They are never recorded.
    """
    changed: tuple[str, ...] = later(())
    """What was sent otherwise than asked, as the model refused it: "without temperature", ..."""
    kept: tuple[Mapping[str, Json], ...] = later(())
    """What the provider wants to see again with this turn, such as signed thinking.

    It is empty unless the request has tools.
    """

    def message(self) -> Message:
        """The turn of this reply, for the next request of the conversation.

        turns += (reply.message(), Message("tool", answer, tool_call_id=reply.tool_calls[0].id))
        """
        return Message("assistant", self.text, self.tool_calls, kept=self.kept)


def check_effort(given: str | None, what: str = "reasoning") -> Effort | None:
    """The effort of that name; raises ValueError with the choices if there is none."""
    if given is None or given in EFFORTS:
        return given
    raise ValueError(f"{what} must be one of {', '.join(EFFORTS)}, not {given!r}")


def check_tool_choice(request: Request) -> None:
    """Raise ValueError if a request must call a tool that it does not have."""
    choice = request.tool_choice
    if choice is None or (choice == ANY_TOOL and request.tools):
        return
    names = [str(tool.get("name")) for tool in request.tools]
    if choice not in names:
        known = ", ".join(names) or "there are none"
        raise ValueError(f"tool_choice is {choice!r}, which is none of its tools: {known}")


class Model(Protocol):
    """The protocol of a model; wrappers (limited, retried, cached, recorded) implement it too.

    `name` is `provider/model`. A model makes one attempt per call and raises one of the subclasses
    of `CallFailed`. It never retries by itself, so that layers of retries can't multiply.
    Cancelling a call closes its connection.
    """

    @property
    def name(self) -> str:
        """`provider/model`, as it was requested."""

    async def complete(self, request: Request, hear: OnText | None = None) -> Reply:
        """Answer once. With `hear`, each piece of text is passed to it as it arrives."""

    async def close(self) -> None:
        """Release connections and memory; a second call does nothing."""


class CallTurn(Protocol):
    """What a call waits for before it is admitted, and leaves after it."""

    @property
    def waits(self) -> bool:
        """Whether another call goes first."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


def first_turn(model: Model, request: Request, *, stream: bool) -> CallTurn | None:
    """What to wait for before a request is admitted; None if nothing.

    A model whose first call goes alone has a method of that name; users' own models need not.
    """
    find = getattr(model, "first_turn", None)
    turn: CallTurn | None = None if find is None else find(request, stream=stream)
    return turn


def full_name(name: str) -> str:
    """A model's name as `provider/model`; it may be given as `provider:model` too.

    >>> full_name("openai:gpt-4o-mini"), full_name("ollama/llama3:8b")
    ('openai/gpt-4o-mini', 'ollama/llama3:8b')
    """
    provider, colon, model = name.partition(":")
    return f"{provider}/{model}" if colon and "/" not in provider else name


def is_bounded(model: Model) -> bool:
    """Whether `max_tokens` bounds its replies; False if the model refused it.

    A model that may refuse it has an attribute of that name; users' own models need not.
    """
    return bool(getattr(model, "is_bounded", True))


def is_greedy(model: Model) -> bool:
    """Whether it is deterministic by default, so that repeated draws would all be equal.

    A model that is so has an attribute `greedy`; users' own models need not have it.
    """
    return bool(getattr(model, "greedy", False))
