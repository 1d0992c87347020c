"""The agents that abreast knows, and those of `[agents.NAME]` in abreast.toml."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from abreast.agents.runner import AgentRunner, AgentUnknown, rules_of
from abreast.system.settings_file import find_table

# Words in errors of providers, which agents pass on.
_LIMIT: Final = (
    r"usage limit",
    r"(hit|reached) your .{0,20}limit",
    r"limit (has been )?reached",
    r"out of (extra )?(usage|credits)",
    r"quota (exceeded|of the day)",
    r"insufficient_quota",
    r"credit balance is too low",
)
_THROTTLED: Final = (r"\b429\b", r"\b529\b", r"rate.?limit", r"too many requests", r"overloaded")
_SIGNED_OUT: Final = (
    r"not logged in",
    r"please run /login",
    r"invalid api key",
    r"\b401\b",
    r"failed to authenticate",
    r"run .codex login",
)

CLAUDE: Final = AgentRunner(
    "claude",
    ("claude", "-p", "--output-format", "stream-json", "--verbose"),
    model=("--model", "{model}"),
    system=("--append-system-prompt", "{system}"),
    schema=("--json-schema", "{schema}"),
    resume=(
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--resume", "{session}"),
    ),
    allow={
        "read": ("--permission-mode", "default"),
        "edit": ("--permission-mode", "acceptEdits"),
        "run": ("--permission-mode", "acceptEdits", "--allowedTools", "Bash"),
        "everything": ("--dangerously-skip-permissions",),
        "*": ("--allowedTools", "{value}"),
    },
    rules=rules_of(
        {
            "text": "type=result result",
            "value": "type=result structured_output",
            "session": ["type=system subtype=init session_id", "type=result session_id"],
            "model": "type=system subtype=init model",
            "turns": "type=result num_turns",
            "cost": "type=result total_cost_usd",
            "input_tokens": [
                "type=result usage.input_tokens",
                "type=result usage.cache_creation_input_tokens",
                "type=result usage.cache_read_input_tokens",
            ],
            "output_tokens": "type=result usage.output_tokens",
            "cached_input_tokens": "type=result usage.cache_read_input_tokens",
            "cache_write_tokens": "type=result usage.cache_creation_input_tokens",
            "turn": "type=assistant message.id",
            "turn_input": [
                "type=assistant message.usage.input_tokens",
                "type=assistant message.usage.cache_creation_input_tokens",
                "type=assistant message.usage.cache_read_input_tokens",
            ],
            "turn_output": "type=assistant message.usage.output_tokens",
            "error": [
                "type=result is_error=true result",
                "type=result is_error=true errors.[]",
                "type=result is_error=true subtype",
            ],
            "status": "type=result is_error=true api_error_status",
            "resets": (
                ["type=rate_limit_event rate_limit_info.status=rejected rate_limit_info.resetsAt"]
            ),
            "denied": "type=result permission_denials.[].tool_name",
            "step": [
                "type=assistant message.content.[type=tool_use]",
                "type=assistant message.content.[type=text].text",
            ],
        }
    ),
    limit=_LIMIT,
    throttled=_THROTTLED,
    signed_out=_SIGNED_OUT,
    version=("claude", "--version"),
    account=("claude", "auth", "status"),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    provider="anthropic",
)

CODEX: Final = AgentRunner(
    "codex",
    ("codex", "exec", "--json", "--skip-git-repo-check", "{options}", "-"),
    model=("--model", "{model}"),
    schema=("--output-schema", "{schema_file}"),
    resume=(
        *("codex", "exec", "--json", "--skip-git-repo-check", "{options}"),
        *("resume", "{session}", "-"),
    ),
    allow={
        "read": ("--sandbox", "read-only"),
        "edit": ("--sandbox", "workspace-write"),
        "run": (
            *("--sandbox", "workspace-write"),
            *("-c", "sandbox_workspace_write.network_access=true"),
        ),
        "everything": ("--dangerously-bypass-approvals-and-sandbox",),
    },
    rules=rules_of(
        {
            "text": "type=item.completed item.type=agent_message item.text",
            "session": "type=thread.started thread_id",
            "input_tokens": "type=turn.completed usage.input_tokens",
            "output_tokens": "type=turn.completed usage.output_tokens",
            "cached_input_tokens": "type=turn.completed usage.cached_input_tokens",
            "cache_write_tokens": "type=turn.completed usage.cache_write_input_tokens",
            "reasoning_tokens": "type=turn.completed usage.reasoning_output_tokens",
            "error": "type=turn.failed error.message",
            "step": [
                "type=item.started item.command",
                "type=item.completed item.type=file_change item.changes.[].path",
                "type=item.completed item.type=agent_message item.text",
            ],
        }
    ),
    limit=_LIMIT,
    throttled=_THROTTLED,
    signed_out=_SIGNED_OUT,
    version=("codex", "--version"),
    account=("codex", "login", "status"),
    keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
    provider="openai",
)

KNOWN: Final[Mapping[str, AgentRunner]] = {each.name: each for each in (CLAUDE, CODEX)}

_LISTS: Final = frozenset(
    "argv model system schema resume limit throttled signed_out version account keys".split()  # noqa: SIM905 - shorter
)
_TABLES: Final = frozenset({"allow", "rules", "env"})
_TEXTS: Final = frozenset({"provider", "home"})
KEYS: Final = (*sorted(_LISTS), *sorted(_TABLES), *sorted(_TEXTS))
"""The keys of `[agents.NAME]`."""


def find_agent(name: str, agents: Mapping[str, AgentRunner]) -> AgentRunner:
    """The agent of that name; raises `AgentUnknown` with those that are there."""
    if name in agents:
        return agents[name]
    close = get_close_matches(name, agents, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(agents))}"
    raise AgentUnknown(
        f"there is no agent {name!r}; {hint} ([agents.{name}] in abreast.toml adds one)"
    )


def find_agents(folder: Path | None = None) -> dict[str, AgentRunner]:
    """The agents of a folder: those that abreast knows, and `[agents.NAME]` of abreast.toml.

    Raises ValueError with the place of what is wrong.
    """
    found = find_table("agents", folder)
    if found is None:
        return dict(KNOWN)
    table, path = found
    if not isinstance(table, Mapping):
        raise ValueError(f"{path}: agents must be tables, such as [agents.mine]")
    return read_agents(table, str(path))


def read_agents(table: Mapping[str, Any], place: str = "abreast.toml") -> dict[str, AgentRunner]:
    """All agents: those that abreast knows, changed by a table, and those that it adds.

    Raises ValueError with the place of what is wrong.
    """
    found = dict(KNOWN)
    for name, given in table.items():
        where = f"{place}: agents.{name}"
        if not isinstance(given, Mapping):
            raise ValueError(f'{where} must be a table, such as argv = ["{name}", "{{prompt}}"]')
        before = found.get(name)
        if before is None and "argv" not in given:
            raise ValueError(f'{where} needs a command: argv = ["{name}", "{{prompt}}"]')
        base = before or AgentRunner(name, ("",))
        found[name] = replace(base, place=place, **_changes(given, base, where))
    return found


def _changes(given: Mapping[str, Any], base: AgentRunner, where: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for key, value in given.items():
        at = f"{where}.{key}"
        if key in _LISTS:
            changes[key] = _texts(value, at)
        elif key == "allow":
            changes[key] = {
                **base.allow,
                **{one: _texts(words, f"{at}.{one}") for one, words in _table(value, at).items()},
            }
        elif key == "rules":
            try:
                changes[key] = {**base.rules, **rules_of(_table(value, at))}
            except ValueError as error:
                raise ValueError(f"{at}: {error}") from None
        elif key == "env":
            changes[key] = {one: str(text) for one, text in _table(value, at).items()}
        elif key in _TEXTS:
            if not isinstance(value, str) or (key == "home" and value not in {"user", "own"}):
                kind = '"user" or "own"' if key == "home" else "a text"
                raise ValueError(f"{at} must be {kind}, not {value!r}")
            changes[key] = value
        else:
            raise ValueError(f"{where} has no {key!r}; there are {', '.join(KEYS)}")
    return changes


def _table(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{at} must be a table")
    return value


def _texts(value: object, at: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{at} must be a list of texts")
    if at.endswith(".argv") and not value:
        raise ValueError(f"{at} is empty")
    return tuple(value)
