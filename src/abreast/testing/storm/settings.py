"""The settings of a storm: limits, speed, headers and faults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from abreast.testing.storm.faults import BATCH_FAULTS, FAULTS

WINDOWS = ("bucket", "fixed", "sliding")
HEADERS = ("honest", "absent", "late", "lying")
RETRY_AFTER = ("right", "absent", "long", "short", "date")
REPLIES = ("words", "echo")
OVERSIZE = ("reject", "admit")
STRICT = (
    "none",
    "openai-reasoning",
    "openai-responses",
    "anthropic-new",
    "anthropic-classic",
    "gemini",
    "deepseek",
    "mistral",
    "groq",
    "xai",
    "openrouter",
    "vllm-old",
)


def _setting(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


def _limit(doc: str) -> Any:
    return field(default=None, metadata={"doc": doc, "limit": True})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set.

    Times are in seconds of a minute of 60; `minute` scales all of them at once.

    A limit of None is no limit. Raises ValueError, in one sentence, for invalid values.

        Settings(rpm=600, concurrency=40, latency=0.5, per_token=0.01, minute=3)
    """

    rpm: float | None = _limit("requests a minute")
    tpm: float | None = _limit("tokens a minute, input and output together")
    input_tpm: float | None = _limit("input tokens a minute")
    output_tpm: float | None = _limit("output tokens a minute")
    concurrency: int | None = _limit("requests in flight at once")
    per_day: float | None = _limit("requests a day (1440 minutes)")
    window: str = _setting("bucket", "how a minute is counted: bucket, fixed or sliding")
    burst: float | None = _limit(
        "how many requests a full bucket holds (a minute's worth if not given)"
    )
    token_burst: float | None = _limit(
        "how many tokens a full bucket holds (a minute's worth if not given)"
    )
    oversize: str = _setting(
        "reject", "a request that no full bucket could hold: reject, or admit it alone"
    )
    neighbour: float = _setting(
        0.0, "the share of every rate that another client takes, from 0 to less than 1"
    )
    minute: float = _setting(
        60.0, "how many real seconds a minute lasts; every other time shrinks with it"
    )
    latency: float = _setting(0.0, "seconds to the first token")
    per_token: float = _setting(0.0, "seconds for each output token")
    noise: float = _setting(0.0, "up to so many seconds more, drawn from the seed")
    output_min: int = _setting(8, "the fewest output tokens of a reply")
    output_max: int = _setting(
        32, "the most output tokens of a reply; max_tokens of a request may cut it shorter"
    )
    chunks: int = _setting(8, "the most pieces a stream comes in")
    reply: str = _setting(
        "words", "what a reply says: words drawn from a digest of the request, or echo"
    )
    strict: str = _setting(
        "none", "the provider whose refusals and replies are imitated, by the name of its profile"
    )
    headers: str = _setting(
        "honest", "what the rate-limit headers are: honest, absent, late or lying"
    )
    lag: float = _setting(5.0, "how many seconds late headers are")
    lie: float = _setting(
        2.0, "lying headers claim so many times the limit, with nothing of it used"
    )
    retry_after: str | float = _setting(
        "right",
        "Retry-After of a 429: "
        "right, absent, long (4 x), short (a quarter), date, or so many seconds",
    )
    markers: bool = _setting(default=True, doc="obey fault-NAME in a model's name or a prompt")
    faults: Mapping[str, float] = field(
        default_factory=dict, metadata={"doc": "how often each fault happens, 0 to 1"}
    )
    fault_at: Mapping[int, str] = field(
        default_factory=dict,
        metadata={"doc": "faults of the n-th request to arrive, counted from 1"},
    )
    batch_seconds: float = _setting(0.0, "how long a batch takes")
    batch_tokens: float | None = _limit("input tokens in batches that have not ended")
    batch_faults: Mapping[str, float] = field(
        default_factory=dict, metadata={"doc": "how often each fault of a batch happens, 0 to 1"}
    )
    batch_fault_at: Mapping[int, str] = field(
        default_factory=dict,
        metadata={"doc": "faults of the n-th batch to be submitted, counted from 1"},
    )
    steps: tuple[SettingsStep, ...] = field(
        default=(), metadata={"doc": "settings that change at a time"}
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            _check_number(each.name, getattr(self, each.name), limit="limit" in each.metadata)
        _check_choices(self)
        _check_faults(self)
        if self.window != "bucket" and (self.burst is not None or self.token_burst is not None):
            raise ValueError(
                f"a burst belongs to the bucket: it means nothing with window={self.window!r}"
            )
        _check_combinations(self)
        object.__setattr__(
            self, "steps", tuple(sorted(map(SettingsStep.of, self.steps), key=lambda step: step.at))
        )

    @property
    def scale(self) -> float:
        """Real seconds per second of a setting."""
        return self.minute / 60.0

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """These settings with some of them changed.

        Raises ValueError for an unknown name, or one that can't change.
        """
        for name in changes:
            if name in _UNCHANGEABLE or name not in NAMES:
                raise ValueError(
                    f"{name!r} can't change while the storm runs; "
                    f"{', '.join(sorted(CHANGEABLE))} can"
                )
        _check_shapes(changes)
        return replace(self, **changes)


class StormSettings(TypedDict, total=False):
    """The fields of `Settings`, as keywords."""

    rpm: float | None
    tpm: float | None
    input_tpm: float | None
    output_tpm: float | None
    concurrency: int | None
    per_day: float | None
    window: str
    burst: float | None
    token_burst: float | None
    oversize: str
    neighbour: float
    minute: float
    latency: float
    per_token: float
    noise: float
    output_min: int
    output_max: int
    chunks: int
    reply: str
    strict: str
    headers: str
    lag: float
    lie: float
    retry_after: str | float
    markers: bool
    faults: Mapping[str, float]
    fault_at: Mapping[int, str]
    batch_seconds: float
    batch_tokens: float | None
    batch_faults: Mapping[str, float]
    batch_fault_at: Mapping[int, str]
    steps: Sequence[SettingsStep | tuple[float, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class SettingsStep:
    """Settings that change `at` seconds after the start.

    Example: `SettingsStep(60, {"rpm": 150})`
    """

    at: float
    changes: Mapping[str, Any]

    @classmethod
    def of(cls, given: Any) -> SettingsStep:
        """Make a step from a step, or from a pair of a time and the changes."""
        if isinstance(given, SettingsStep):
            step = given
        elif isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], Mapping):  # noqa: PLR2004 - a pair
            step = cls(*given)
        else:
            raise ValueError(
                f"a step is a time and what changes then, as in (60, {{'rpm': 150}}), not {given!r}"
            )
        if isinstance(step.at, bool | str):
            raise ValueError(f"the time of a step is a number, not {step.at!r}")
        _check_number("the time of a step", step.at, limit=False)
        if not set(step.changes) <= CHANGEABLE:
            unknown = ", ".join(sorted(set(step.changes) - CHANGEABLE))
            raise ValueError(
                f"a step can't change {unknown}; it can change {', '.join(sorted(CHANGEABLE))}"
            )
        return step


NAMES = frozenset(each.name for each in fields(Settings))
_UNCHANGEABLE = frozenset({"minute", "steps", "window", "output_min", "output_max"})
CHANGEABLE = NAMES - _UNCHANGEABLE


def make_settings(options: Mapping[str, Any]) -> Settings:
    """Make settings and check them, also after each step; ValueError names what is wrong."""
    unknown = options.keys() - NAMES
    if unknown:
        raise ValueError(
            f"there is no setting {', '.join(sorted(unknown))}; "
            f"there are {', '.join(sorted(NAMES))}"
        )
    _check_shapes(options)
    settings = Settings(**options)
    current = settings
    for step in settings.steps:
        current = current.changed(step.changes)
    return settings


def from_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert options from JSON, where the numbers of `fault_at` are strings."""
    converted = dict(options)
    for setting in ("fault_at", "batch_fault_at"):
        if isinstance(at := options.get(setting), dict):
            converted[setting] = {
                int(number) if str(number).isdecimal() else number: name
                for number, name in at.items()
            }
    return converted


def _check_shapes(options: Mapping[str, Any]) -> None:
    """Check the types of mappings and lists, as input may have any type.

    Numbers and words are checked by Settings itself.
    """
    for name, keys, values in (
        ("faults", str, int | float),
        ("fault_at", int, str),
        ("batch_faults", str, int | float),
        ("batch_fault_at", int, str),
    ):
        given = options.get(name, {})
        valid = isinstance(given, Mapping) and all(
            isinstance(k, keys) and isinstance(v, values) for k, v in given.items()
        )
        if not valid:
            raise ValueError(f"{name} is a mapping, as in {_EXAMPLES[name]}, not {given!r}")
    if not isinstance(options.get("steps", ()), tuple | list):
        raise ValueError(f"steps are a list, as in {_EXAMPLES['steps']}, not {options['steps']!r}")


_EXAMPLES = {
    "faults": '{"500": 0.01}',
    "fault_at": '{3: "stall"}',
    "batch_faults": '{"lost": 0.1}',
    "batch_fault_at": '{1: "lost"}',
    "steps": '[(60, {"rpm": 150})]',
}


def _check_number(name: str, value: object, *, limit: bool) -> None:
    if value is None or isinstance(value, bool | str) or not isinstance(value, int | float):
        if limit and value is not None:
            raise ValueError(f"{name} is a number, not {value!r}")
        return
    if not math.isfinite(value) or value < 0 or (limit and value == 0):
        raise ValueError(
            f"{name} is a {'positive number' if limit else 'number of at least 0'}, not {value!r}"
        )


def _check_choices(settings: Settings) -> None:
    for name, allowed in _CHOICES.items():
        if getattr(settings, name) not in allowed:
            raise ValueError(
                f"{name} is one of {', '.join(allowed)}, not {getattr(settings, name)!r}"
            )
    wait = settings.retry_after
    if isinstance(wait, bool) or (isinstance(wait, str) and wait not in RETRY_AFTER):
        raise ValueError(
            f"retry_after is one of {', '.join(RETRY_AFTER)} or a number of seconds, not {wait!r}"
        )
    times = ("latency", "per_token", "noise", "minute", "lag", "batch_seconds")
    for name in (*times, "neighbour", "lie"):
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name} is a number, not {value!r}")
    for name in ("concurrency", "output_min", "output_max", "chunks"):
        value = getattr(settings, name)
        if value is not None and (
            not isinstance(value, int) or isinstance(value, bool) or value < 1
        ):
            raise ValueError(f"{name} is a whole number of at least 1, not {value!r}")


def _check_combinations(settings: Settings) -> None:
    if not settings.neighbour < 1:
        raise ValueError(f"neighbour is a share below 1, not {settings.neighbour!r}")
    if settings.minute == 0:
        raise ValueError("a minute lasts longer than 0 seconds")
    if settings.output_min > settings.output_max:
        raise ValueError(
            f"output_min ({settings.output_min}) is more than output_max ({settings.output_max})"
        )
    counted = settings.rpm is not None and settings.window != "bucket"
    left = (settings.rpm or 0.0) * (1.0 - settings.neighbour) if counted else 1.0
    for name, value in (
        ("burst", settings.burst),
        ("per_day", settings.per_day),
        ("what is left of rpm", left),
    ):
        if value is not None and value < 1:
            raise ValueError(
                f"{name} is at least 1, or nothing would ever be admitted, not {value!r}"
            )


def _check_faults(settings: Settings) -> None:
    _check_rates(FAULTS, "", settings.faults, settings.fault_at)
    _check_rates(BATCH_FAULTS, "batch_", settings.batch_faults, settings.batch_fault_at)


def _check_rates(
    known: Mapping[str, object], prefix: str, faults: Mapping[str, float], at: Mapping[int, str]
) -> None:
    for name in (*faults, *at.values()):
        if name not in known:
            raise ValueError(f"there is no fault {name!r}; there are {', '.join(known)}")
    rates = faults.values()
    if not all(0 <= rate <= 1 for rate in rates) or sum(rates) > 1:
        raise ValueError(
            f"the rates of faults are from 0 to 1, and no more than 1 together, not {dict(faults)}"
        )
    if not all(number >= 1 for number in at):
        raise ValueError(f"{prefix}fault_at counts requests from 1, not {sorted(at, key=str)}")


_CHOICES = {
    "window": WINDOWS,
    "headers": HEADERS,
    "reply": REPLIES,
    "oversize": OVERSIZE,
    "strict": STRICT,
}
