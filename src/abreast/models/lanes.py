"""The built-in providers, and the settings of lanes in `abreast.toml`."""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeGuard
from urllib.parse import urlsplit

from abreast.core.errors import KeysMissing, ModelUnknown
from abreast.models.price import FlatPrice

Kind: TypeAlias = Literal["openai", "anthropic", "gemini", "local", "scripted", "replay", "litellm"]

DEFAULT_WIDTH: Final = 4
DEFAULT_OUTAGE: Final = 600.0  # seconds that a provider may be down before its lane is parked
# The package that an adapter imports, by the extra that installs it.
_EXTRAS: Final[Mapping[Kind, str]] = {"local": "xllamacpp", "litellm": "litellm"}


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """Settings of a provider's lane: its protocol, address, key and limits."""

    name: str
    kind: Kind = "openai"
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    # Requests at once; if the lane is adaptive, the number at which the search begins.
    width: int = DEFAULT_WIDTH
    # Whether its limits are found by search; not if the user has given a width.
    adaptive: bool = False
    capped: bool = False  # whether the width is set by the user, and never exceeded
    rpm: float | None = None
    tpm: float | None = None
    price: FlatPrice | None = None
    timeout: float | None = None  # seconds without a byte after which a call fails
    first_byte: float | None = None  # seconds without the first one
    outage: float = DEFAULT_OUTAGE  # seconds that the provider may be down
    max_tokens: str | None = None  # the endpoint's name for the bound on a reply's tokens
    place: str = "built in"

    @property
    def key(self) -> str | None:
        """The key, from the environment or its file; None if there is none."""
        if self.api_key_env and (found := os.environ.get(self.api_key_env, "").strip()):
            return found
        if self.api_key_file:
            try:
                return Path(self.api_key_file).expanduser().read_text("utf-8").strip() or None
            except (OSError, UnicodeDecodeError):
                return None
        return None

    @property
    def has_models(self) -> bool:
        """Whether it has models; a lane with only a width limits the steps of workflows."""
        return self.base_url is not None or self.kind not in _HTTP_KINDS

    @property
    def wants_key(self) -> bool:
        """Whether it requires a key."""
        return bool(self.api_key_env or self.api_key_file)


# Providers that reject excess requests. A local server accepts every request and becomes slow, so
# its limit can't be found this way.
_ADAPTIVE: Final = ("openai", "anthropic", "gemini", "mistral", "deepseek", "litellm")

PROVIDERS: Final[Mapping[str, LaneSettings]] = {
    one.name: replace(one, adaptive=one.name in _ADAPTIVE)
    for one in (
        LaneSettings("openai", "openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        LaneSettings("anthropic", "anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
        LaneSettings(
            "gemini", "gemini", "https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY"
        ),
        LaneSettings(
            "mistral",
            "openai",
            "https://api.mistral.ai/v1",
            "MISTRAL_API_KEY",
            max_tokens="max_tokens",
        ),
        LaneSettings(
            "deepseek",
            "openai",
            "https://api.deepseek.com/v1",
            "DEEPSEEK_API_KEY",
            max_tokens="max_tokens",
        ),
        LaneSettings("ollama", "openai", "http://127.0.0.1:11434/v1", max_tokens="max_tokens"),
        LaneSettings("local", "local", width=8, price=FlatPrice(0.0, 0.0)),
        LaneSettings("scripted", "scripted", width=1_000_000, price=FlatPrice(0.0, 0.0)),
        LaneSettings("replay", "replay", width=1_000_000),
        LaneSettings("litellm", "litellm"),
    )
}

# Providers with another name in the price table.
PRICE_TABLE: Final[Mapping[str, str]] = {"gemini": "google"}

_HTTP_KINDS: Final = ("openai", "anthropic", "gemini")


def read_lanes(table: object, place: str, folder: Path | None = None) -> dict[str, LaneSettings]:
    """The lanes of a `[lanes.*]` table, added to the built-in ones.

    The path of a key's file is relative to `folder`, the directory of the table's own file. Raises
    ValueError with the fault and its place.
    """
    lanes = dict(PROVIDERS)
    if not isinstance(table, Mapping):
        raise ValueError(f"{place}: lanes must be tables, such as [lanes.openai]")
    for name, given in table.items():
        where = f"{place}: lanes.{name}"
        if not isinstance(given, Mapping):
            raise ValueError(f"{where} must be a table, such as [lanes.{name}] with width = 8")
        if not name or "/" in name:
            raise ValueError(
                f"{where}: a lane's name is the part before the / of its models' names"
            )
        lanes[name] = lane = _lane(name, given, where, lanes.get(name))
        if folder is not None and lane.api_key_file is not None:
            lanes[name] = replace(
                lane, api_key_file=str(folder / Path(lane.api_key_file).expanduser())
            )
    return lanes


def find_lanes(folder: Path | None = None) -> dict[str, LaneSettings]:
    """The lanes configured for `folder`.

    They are in `abreast.toml`, or in `[tool.abreast]` of pyproject.toml, in this folder or above.
    """
    here = folder or Path.cwd()
    for name, keys in (
        ("abreast.toml", ("lanes",)),
        ("pyproject.toml", ("tool", "abreast", "lanes")),
    ):
        for above in (here, *here.parents):
            path = above / name
            if path.is_file():
                table: Any = tomllib.loads(path.read_text("utf-8"))
                for key in keys:
                    table = table.get(key, {}) if isinstance(table, Mapping) else {}
                if table:
                    return read_lanes(table, str(path), above)
    return dict(PROVIDERS)


def split_name(name: str, lanes: Mapping[str, LaneSettings]) -> tuple[LaneSettings, str]:
    """The lane of a model and the model's own name; raises `ModelUnknown` with the choices."""
    provider, slash, model = name.partition("/")
    known = ", ".join(sorted(lanes))
    if not slash or not model:
        raise ModelUnknown(
            "a model is named provider/model, such as openai/gpt-4o-mini or local/smollm2, "
            f"not {name!r}"
        )
    if provider not in lanes:
        close = get_close_matches(provider, lanes, 1)
        hint = f"did you mean {close[0]}/{model}?" if close else f"there are {known}"
        raise ModelUnknown(
            f"there is no provider {provider!r}; {hint}; declare others as [lanes.{provider}] in "
            "abreast.toml"
        )
    if not lanes[provider].has_models:
        raise ModelUnknown(
            f"{lanes[provider].place} is only a width, and has no models: give it a base_url, "
            "such as http://127.0.0.1:8000/v1"
        )
    return lanes[provider], model


def missing_extra(lane: LaneSettings) -> str | None:
    """The package that a lane's models need and how to install it, in a sentence.

    None if it is installed.
    """
    needed = _EXTRAS.get(lane.kind)
    if needed is None or find_spec(needed) is not None:
        return None
    install = f"pip install 'abreast[{lane.kind}]'"
    return f"models named {lane.name}/... need {needed}, which is not installed: {install}"


def check_keys(lanes: list[LaneSettings]) -> None:
    """`KeysMissing` for all lanes whose key isn't there, at once.

    `ModelUnknown` where a package is missing.
    """
    for lane in lanes:
        if (why := missing_extra(lane)) is not None:
            raise ModelUnknown(why)
    missing = {lane.name: lane for lane in lanes if lane.wants_key and lane.key is None}
    if missing:
        wanted = "; ".join(
            f"{name} wants {_key_source(lane)}" for name, lane in sorted(missing.items())
        )
        raise KeysMissing(f"{'a key is' if len(missing) == 1 else 'keys are'} missing: {wanted}")


def _key_source(lane: LaneSettings) -> str:
    places = {"the environment variable": lane.api_key_env, "the file": lane.api_key_file}
    return " or ".join(f"{what} {name}" for what, name in places.items() if name)


def _lane(
    name: str, given: Mapping[str, Any], where: str, before: LaneSettings | None
) -> LaneSettings:
    for field in given:
        _check_field(field, where)
    lane = before or LaneSettings(name, max_tokens="max_tokens", adaptive=True)
    read = {field: _READERS[field](value, f"{where}.{field}") for field, value in given.items()}
    own = {"adaptive": False, "capped": True} if "width" in given else {}
    changes: dict[str, Any] = {"place": where, **own, **read}
    lane = replace(lane, **changes)
    if not lane.has_models and set(given) != {"width"}:
        only = "; one that is only for steps of workflows has a width and nothing else"
        raise ValueError(f"{where} needs a base_url, such as http://127.0.0.1:8000/v1{only}")
    return lane


def _check_field(field: str, where: str) -> None:
    if field in ("api_key", "key"):
        raise ValueError(
            f"{where}.{field}: a key doesn't belong in this file; "
            "name a variable (api_key_env) or a file (api_key_file) that holds it"
        )
    if field not in _READERS:
        close = get_close_matches(field, _READERS, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_READERS)}"
        raise ValueError(f"{where}: there is no setting {field!r}; {hint}")


def _reader(what: str, is_valid: Callable[[object], bool]) -> Callable[[object, str], Any]:
    def read(given: object, where: str) -> object:
        if not is_valid(given):
            raise ValueError(f"{where} must be {what}, not {given!r}")
        return given

    return read


_text: Final = _reader("a text", lambda given: isinstance(given, str) and bool(given))


def _url(given: object, where: str) -> str:
    text: str = _text(given, where)
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if "@" in parts.netloc:
        raise ValueError(f"{where}: a user or a password doesn't belong in an address")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{where} must begin with http:// or https:// and a host, not {text!r}")
    return text


def check_width(given: object, where: str) -> int:
    """A lane's width: a whole number of at least 1."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ValueError(f"{where} must be a whole number of at least 1, not {given!r}")
    return given


def _positive(given: object, where: str) -> float:
    if not _is_finite(given) or given <= 0:
        raise ValueError(f"{where} must be a positive number, not {given!r}")
    return float(given)


def _seconds(given: object, where: str) -> float:
    if not _is_finite(given) or given < 0:
        raise ValueError(f"{where} must be a number of seconds of at least 0, not {given!r}")
    return float(given)


def _is_finite(given: object) -> TypeGuard[float]:
    return not isinstance(given, bool) and isinstance(given, (int, float)) and isfinite(given)


def _price(given: object, where: str) -> FlatPrice:
    if not isinstance(given, Mapping) or set(given) != {"input", "output"}:
        raise ValueError(
            f"{where} must be {{input = ..., output = ...}}, US dollars per million tokens, "
            f"not {given!r}"
        )
    for side, amount in given.items():
        if not _is_finite(amount) or amount < 0:
            raise ValueError(f"{where}.{side} must be a number of at least 0, not {amount!r}")
    return FlatPrice(float(given["input"]), float(given["output"]))


_READERS: Final[Mapping[str, Callable[[object, str], object]]] = {
    "kind": _reader(f"one of {', '.join(_HTTP_KINDS)}", lambda given: given in _HTTP_KINDS),
    "base_url": _url,
    "api_key_env": _text,
    "api_key_file": _text,
    "width": check_width,
    "adaptive": _reader("true or false", lambda given: isinstance(given, bool)),
    "rpm": _positive,
    "tpm": _positive,
    "price": _price,
    "timeout": _positive,
    "first_byte": _positive,
    "outage": _seconds,
    "max_tokens": _text,
}
