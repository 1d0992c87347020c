"""How an agent is started and what its output means, as data: one row for each agent.

A row has command lines and rules. A rule says where a fact is in a line of JSON that the agent
writes: conditions, then a path, all separated by spaces.

    type=result is_error=true result            the field `result` of such an object
    type=assistant message.content.[type=tool_use].name      of each such element of a list
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from abreast.core.errors import AbreastError

Permission: TypeAlias = str
"""What an agent may do: `read`, `edit`, `run`, `everything`, or a word of the agent's own."""
PERMISSIONS: Final = ("read", "edit", "run", "everything")
OTHER: Final = "*"
"""The key of `allow` for words of the agent's own; `{value}` stands for the word."""
PROMPT: Final = "{prompt}"
TEXT: Final = "text"
FIELDS: Final = (
    TEXT,
    "value",
    "session",
    "model",
    "turns",
    "cost",
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "turn",
    "turn_input",
    "turn_output",
    "error",
    "status",
    "resets",
    "denied",
    "step",
)
"""What rules may find; those with `turn` are counted as it runs, once for each value of `turn`."""
SUMS: Final = frozenset(name for name in FIELDS if "_tokens" in name or name.startswith("turn_"))
"""Fields whose rules are added up, in one line of output."""


class AgentUnknown(AbreastError, retryable=False):
    """There is no agent of that name, or it does not have what is asked of it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Where a fact is in a line of JSON."""

    conditions: tuple[tuple[tuple[str, ...], str], ...]
    path: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Rule":
        """Read `a.b=c ... d.e`; raises ValueError if it has no path, or it is not the last word."""
        *before, path = text.split() or [""]
        if not path or ("=" in path and "[" not in path) or not all("=" in one for one in before):
            raise ValueError(f"{text!r} is no rule; write conditions and a path: type=result cost")
        pairs = [one.partition("=") for one in before]
        return cls(tuple((tuple(name.split(".")), value) for name, _, value in pairs), _parts(path))

    def find(self, event: Mapping[str, Any]) -> list[Any]:
        """The values in an event, not counting null; none if a condition does not hold."""
        for path, wanted in self.conditions:
            if wanted not in {_plain(each) for each in _values(event, path)}:
                return []
        return [each for each in _values(event, self.path) if each is not None]


def _parts(path: str) -> tuple[str, ...]:
    """The parts of a path; a dot inside of brackets does not divide."""
    parts, inside = [""], False
    for letter in path:
        inside = letter == "[" or (inside and letter != "]")
        if letter == "." and not inside:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(parts)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(value: object, path: tuple[str, ...]) -> Iterator[Any]:
    if not path:
        yield value
        return
    part, rest = path[0], path[1:]
    if part.startswith("[") and isinstance(value, list):
        name, _, wanted = part[1:-1].partition("=")
        for each in value:
            if not name or (isinstance(each, dict) and _plain(each.get(name)) == wanted):
                yield from _values(each, rest)
    elif isinstance(value, Mapping) and part in value:
        yield from _values(value[part], rest)


@dataclass(frozen=True, slots=True)
class AgentRunner:
    """One agent: its command line, what may be added to it, and the rules for its output."""

    name: str
    argv: tuple[str, ...]
    """The command; `{prompt}` is the task. Without it, the task is the standard input.

    What is added stands at `{options}`, or at the end.
    """
    model: tuple[str, ...] = ()
    """Words to add for a model, `{model}`."""
    system: tuple[str, ...] = ()
    """Words to add for a system prompt, `{system}`; without them it comes before the task."""
    schema: tuple[str, ...] = ()
    """Words to add for a JSON schema: `{schema}`, or `{schema_file}` for a file that has it."""
    resume: tuple[str, ...] = ()
    """The command that goes on with `{session}`, in place of `argv`."""
    allow: Mapping[Permission, tuple[str, ...]] = field(default_factory=dict)
    """Words to add for what it may do."""
    rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    """Where the facts are, by the names of `FIELDS`; none for an agent that writes plain text."""
    limit: tuple[str, ...] = ()
    """Patterns of errors that mean: the account's limit is reached."""
    throttled: tuple[str, ...] = ()
    """Patterns of errors that mean: too many requests, try again soon."""
    signed_out: tuple[str, ...] = ()
    """Patterns of errors that mean: it has no account or key."""
    version: tuple[str, ...] = ()
    """The command that prints its version."""
    account: tuple[str, ...] = ()
    """The command that ends with 0 if it is signed in."""
    keys: tuple[str, ...] = ()
    """Environment variables with a key, which do in place of an account."""
    provider: str = ""
    """The provider of its models in the table of prices."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to set."""
    home: Literal["user", "own"] = "user"
    """Whether it has your home, with your account and settings, or an empty one for each item."""
    place: str = "built in"

    @property
    def program(self) -> str:
        """The name of its program."""
        return self.argv[0]

    @property
    def is_structured(self) -> bool:
        """Whether it writes lines of JSON."""
        return TEXT in self.rules

    def permissions(self, allow: tuple[Permission, ...]) -> list[str]:
        """The words for what it may do; raises `AgentUnknown` if it does not know one of them."""
        words: list[str] = []
        for each in allow:
            given = self.allow.get(each)
            if given is None and OTHER in self.allow and each not in PERMISSIONS:
                given = tuple(word.replace("{value}", each) for word in self.allow[OTHER])
            if given is None:
                known = ", ".join(name for name in self.allow if name != OTHER) or "nothing"
                raise AgentUnknown(
                    f"{self.name} can't be allowed {each!r}; it knows {known} "
                    f"(`allow` under [agents.{self.name}] in abreast.toml)"
                )
            words += given
        return words


def rules_of(given: Mapping[str, object]) -> dict[str, tuple[Rule, ...]]:
    """Read rules; raises ValueError for an unknown field or a text that is no rule."""
    found: dict[str, tuple[Rule, ...]] = {}
    for name, texts in given.items():
        if name not in FIELDS:
            raise ValueError(f"there is no field {name!r}; there are {', '.join(FIELDS)}")
        listed = [texts] if isinstance(texts, str) else texts
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            raise ValueError(f"{name} must be a rule or a list of rules")
        found[name] = tuple(Rule.read(str(one)) for one in listed)
    return found
