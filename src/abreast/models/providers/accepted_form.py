"""The form of requests that a model accepts, learned from its refusals.

Providers change what a model accepts while it lives, and every table of it lags behind. So a 400
or 422 that names a parameter is learned from: the request is sent again without it, or as the
message asks, and later requests to the model are written that way from the start.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from abreast.core.errors import CallFailed
from abreast.models.lanes import Structured
from abreast.models.providers.first_calls import FirstCalls

STRUCTURED_WAYS: Final[tuple[Structured, ...]] = get_args(Structured)

MAX_LESSONS: Final = 12
"""Refusals that one call learns from; more than a request has parameters that may be refused."""

BOUNDS: Final = frozenset(
    {"max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"}
)
"""The parameters that bound a reply."""
# Parameters that a request can do without. What a reply means does not depend on them, but for
# those of a schema, which then is asked for in another way.
_OPTIONAL: Final = frozenset(
    {
        *("temperature", "top_p", "topP", "top_k", "topK", "min_p", "n", "seed", "random_seed"),
        *("stop", "stop_sequences", "stopSequences", "logprobs", "top_logprobs", "logit_bias"),
        *("frequency_penalty", "frequencyPenalty", "presence_penalty", "presencePenalty"),
        *BOUNDS,
        *("reasoning", "reasoning.effort", "reasoning.max_tokens", "reasoning.summary"),
        *("reasoning_effort", "output_config.effort", "thinking", "thinkingConfig"),
        *("thinkingConfig.thinkingLevel", "thinkingConfig.thinkingBudget", "verbosity"),
        *("user", "metadata", "store", "include", "service_tier", "parallel_tool_calls"),
        *("stream_options", "cache_control", "prompt_cache_key", "prompt_cache_retention"),
    }
)
_OF_SCHEMA: Final = frozenset(
    {
        *("response_format", "output_config.format", "text.format", "tool_choice", "toolConfig"),
        *("responseJsonSchema", "responseSchema", "responseMimeType"),
    }
)
_TOOL_CHOICES: Final = frozenset({"tool_choice", "toolConfig"})
_THINKING: Final = frozenset({"thinking", "reasoning", "reasoning_effort", "thinkingConfig"})
# Where parameters are inside another one.
_PARENTS: Final = frozenset(
    {"generationConfig", "output_config", "text", "reasoning", "thinkingConfig"}
)
_MAX_TOKENS: Final = ("max_completion_tokens", "max_tokens")

_UNSUPPORTED: Final = re.compile(
    r"unsupported|not[ _]support|n't support|not (currently )?(available|enabled|permitted|allowed)"
    r"|unavailable|deprecated|extra_forbidden|unknown|unrecogni[sz]ed|unexpected|no longer"
    r"|(may|can|must) ?not be (set|used|specified|enabled|modified)|cannot be (set|used|specified)"
    r"|only the default|not compatible|incompatible|requires --enable|removed"
)
# An error about one schema, not about the way in which it is asked for.
_BAD_SCHEMA: Final = re.compile(
    r"invalid schema|in the schema|too many (properties|optional|parameters)"
    r"|(?<![_a-z])schema\b.{0,60}(invalid|contains|too (complex|large|deep|many)"
    r"|not (supported|allowed|permitted))"
)
_INSTEAD: Final = re.compile(r"use ['\"`]?(\w+)['\"`]? instead")
_WORD: Final = re.compile(r"[A-Za-z_][\w.]*")
_QUOTES: Final = ("'", '"', "`")
# Parameters that are words of the language too: a message names them only in quotation marks, or
# before a colon.
_PLAIN_WORDS: Final = frozenset(
    {"stop", "n", "user", "metadata", "store", "include", "reasoning", "thinking", "verbosity"}
)
# What messages call a parameter, beside its name.
_ALSO_CALLED: Final[Mapping[str, tuple[str, ...]]] = {
    "response_format": ("json_schema", "json_object", "guided_json", "structured outputs"),
    "output_config.format": ("output_config", "output_format", "structured outputs"),
    "output_config.effort": ("effort",),
    "text.format": ("json_schema", "structured outputs"),
    "responseJsonSchema": ("response_schema", "json mode", "response mime type"),
    "tool_choice": ("tool choice", "function calling", "forced tool"),
    "frequencyPenalty": ("penalty",),
    "presencePenalty": ("penalty",),
    "frequency_penalty": ("frequency penalty",),
    "presence_penalty": ("presence penalty",),
    "thinkingConfig.thinkingLevel": ("thinking level", "thinking_level"),
    "thinkingConfig.thinkingBudget": ("thinking budget", "thinking_budget"),
}


@dataclass(slots=True)
class AcceptedForm:
    """What one model refused, and which parameters it is known to accept.

    `keep`, if there is one, stores it for later processes.
    """

    dropped: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    refused_ways: set[str] = field(default_factory=set)
    accepted: set[str] = field(default_factory=set)
    keep: Callable[[], None] | None = None
    shapes: set[object] = field(default_factory=set, compare=False)
    """Of requests that are known to be accepted in the present form."""
    first_calls: FirstCalls = field(init=False, compare=False, repr=False)
    _is_kept: bool = True

    def __post_init__(self) -> None:
        self.first_calls = FirstCalls(self.knows, self.accept)

    def __bool__(self) -> bool:
        """Whether anything was refused."""
        return bool(self.dropped or self.renamed or self.refused_ways)

    def spoken(self) -> str:
        """A short text such as `without temperature, max_tokens as max_completion_tokens`."""
        return ", ".join(
            [
                *(f"without {name}" for name in sorted(self.dropped)),
                *(f"{old} as {new}" for old, new in sorted(self.renamed.items())),
                *(f"no schema by {way}" for way in sorted(self.refused_ways) if " " not in way),
            ]
        )

    # --- writing

    def apply(self, body: dict[str, Any]) -> tuple[str, ...]:
        """Change a body to what the model accepts; returns what was left out, in words."""
        if not self.dropped and not self.renamed:
            return ()
        for old, new in self.renamed.items():
            if old in body:
                body[new] = body.pop(old)
        present = {name for name, _ in parameters(body)}
        left_out = sorted(self.dropped & present)
        for name in left_out:
            _remove(body, name)
        return tuple(f"without {name}" for name in left_out if name != "stream_options")

    def first_way(self, ways: Iterable[Structured], schema: Mapping[str, Any]) -> Structured:
        """The first of these ways to ask for a value that the model has not refused.

        It may have refused a way for this schema only.
        """
        if not self.refused_ways:
            return next(iter(ways), "none")
        mark = _mark(schema)
        refused = self.refused_ways
        return next(
            (way for way in ways if way not in refused and f"{way} {mark}" not in refused), "none"
        )

    # --- learning

    def learn(
        self,
        error: CallFailed,
        body: Mapping[str, Any],
        way: Structured | None = None,
        schema: Mapping[str, Any] | None = None,
        *,
        own_tool: bool,
        forces_tool: bool = False,
    ) -> bool:
        """Learn from a refusal of this body; whether there is anything to send otherwise.

        `way` is how the body asks for a value by the schema, None if it has none. `own_tool` is
        whether its only tool is the one that such a way adds, `forces_tool` whether it must call
        a tool of the request's own.
        """
        optional = _OPTIONAL | _TOOL_CHOICES if forces_tool else _OPTIONAL
        of_schema = _OF_SCHEMA - optional
        named = _named_parameter(error, body, optional, of_schema, own_tool=own_tool)
        if named is None:
            return False
        if named in _TOOL_CHOICES and forces_tool:
            if _is_about_thinking(error, body):
                return False
            self.dropped.add(named)
            self.refused_ways.add("tool")  # which forces one, too
        elif schema is not None and (named in _OF_SCHEMA or named == "tools"):
            if way is None or way == "none":
                return False
            only_this = _BAD_SCHEMA.search(error.raw.lower())
            self.refused_ways.add(f"{way} {_mark(schema)}" if only_this else way)
        elif named in _OF_SCHEMA or named == "tools":
            return False
        elif named in _MAX_TOKENS:
            self._learn_max_tokens(named, error)
        else:
            self.dropped.add(named)
        self.accepted.discard(named)
        self.shapes.clear()
        self._is_kept = False
        self.store()
        return True

    def _learn_max_tokens(self, named: str, error: CallFailed) -> None:
        asked = _INSTEAD.search(error.raw)
        other = asked[1] if asked else next(name for name in _MAX_TOKENS if name != named)
        if other == named or self.renamed.pop(other, None) is not None:
            self.dropped |= {named, other}
        else:
            self.renamed[named] = other

    # --- what is known to be accepted

    def knows(self, body: Mapping[str, Any]) -> bool:
        """Whether all parameters of a body were accepted before."""
        accepted = self.accepted
        return accepted.issuperset(body) and (
            _PARENTS.isdisjoint(body) or accepted.issuperset(name for name, _ in parameters(body))
        )

    def accept(self, body: Mapping[str, Any]) -> None:
        """Remember that the model accepted these parameters."""
        self.accepted.update(body)
        self.accepted.update(name for name, _ in parameters(body))
        self._is_kept = False

    def store(self) -> None:
        """Keep what was learned since the last time."""
        if self.keep is not None and not self._is_kept:
            self._is_kept = True
            self.keep()


def parameters(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The parameters of a body, each by its name in the tables above and by its last part."""
    for key, value in body.items():
        if key not in _PARENTS or not isinstance(value, Mapping):
            yield key, key
            continue
        if key != "generationConfig":
            yield key, key
        for name, part in parameters(value):
            yield (name if key == "generationConfig" else f"{key}.{name}"), part


def _mark(schema: Mapping[str, Any]) -> str:
    """A short name for a schema."""
    text = json.dumps(schema, sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _remove(body: dict[str, Any], name: str) -> None:
    parent, _, part = name.rpartition(".")
    for place in (body, body.get("generationConfig")):
        if not isinstance(place, dict):
            continue
        inside = place.get(parent) if parent else place
        if isinstance(inside, dict) and part in inside:
            del inside[part]
            if parent and not inside:
                del place[parent]
    if body.get("generationConfig") == {}:
        del body["generationConfig"]


def _is_about_thinking(error: CallFailed, body: Mapping[str, Any]) -> bool:
    """Whether a tool can't be forced because the request asks for thinking.

    That is no lesson about the model: the user has to choose one of the two.
    """
    asks = any(name.partition(".")[0] in _THINKING for name, _ in parameters(body))
    return asks and "think" in error.raw.lower()


def _named_parameter(
    error: CallFailed,
    body: Mapping[str, Any],
    optional: Collection[str],
    of_schema: Collection[str],
    *,
    own_tool: bool,
) -> str | None:
    """The parameter of this body that an error says the model doesn't take; None if it says none.

    Errors about a parameter's value are the user's to know about.
    """
    message, named, mark = _parts_of(error.raw)
    words = f"{mark} {message}".lower()
    is_unsupported = _UNSUPPORTED.search(words) is not None
    # Whatever is wrong with the way of a schema, there is another one.
    choices = {
        name: part
        for name, part in parameters(body)
        if (is_unsupported and name in optional)
        or name in of_schema
        or (is_unsupported and own_tool and name == "tools")
    }
    for given in named:
        for name, part in choices.items():
            if _plain(given) in (_plain(name), _plain(part)) or (
                name in _OF_SCHEMA and _plain(given).startswith(_plain(name))
            ):
                return name
    found = [
        (place, name)
        for name, part in choices.items()
        if (place := _place_in(message, name, part)) is not None
    ]
    return min(found)[1] if found else None


def _place_in(message: str, name: str, part: str) -> int | None:
    """Where a message mentions a parameter, by its name or by what else it is called."""
    wanted = {_plain(name), _plain(part)}
    for word in _WORD.finditer(message):
        text = _plain(word[0].rstrip("."))
        if (text in wanted or text.partition(".")[0] in wanted) and (
            part not in _PLAIN_WORDS or "." in text or _is_marked(message, word)
        ):
            return word.start()
    lower = message.lower()
    places = [lower.find(other) for other in _ALSO_CALLED.get(name, ())]
    return min((place for place in places if place >= 0), default=None)


def _is_marked(message: str, word: re.Match[str]) -> bool:
    before, after = message[: word.start()], message[word.end() :][:1]
    is_quoted = before[-1:] in _QUOTES and after in _QUOTES
    return is_quoted or after == ":" or before.lower().endswith(("parameter ", "supplied: "))


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _parts_of(raw: str) -> tuple[str, list[str], str]:
    """An error's message, the parameters that it names in a field of its own, and its code."""
    try:
        document: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return raw, [], ""
    while isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return raw, [], ""
    inner = document.get("error")
    error = inner if isinstance(inner, dict) else document
    named = [error["param"]] if isinstance(error.get("param"), str) else []
    marks = [str(error.get(key, "")) for key in ("code", "type")]
    texts = [error[key] for key in ("message", "detail", "error") if error.get(key)]
    details = [one for text in texts if isinstance(text, list) for one in text]
    for detail in details:
        if isinstance(detail, dict):
            place = detail.get("loc")
            named += [part for part in place if isinstance(part, str)] if place else []
            marks.append(str(detail.get("type", "")))
    if isinstance(inner, str):
        texts.append(inner)
    written = " ".join(text if isinstance(text, str) else json.dumps(text) for text in texts)
    return written or raw, [name for name in named if name != "body"], " ".join(marks)
