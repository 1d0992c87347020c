"""The built-in providers, and the settings of lanes in `abreast.toml`."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from abreast.core.errors import KeysMissing, ModelUnknown
from abreast.models.batch.terms import DEFAULT_TERMS, BatchTerms
from abreast.models.lane_fields import ENV, HTTP_KINDS, NO_PROXY, VARIABLE, read_fields
from abreast.models.port import Effort, full_name
from abreast.models.price import FlatPrice
from abreast.system.installation import install_hint
from abreast.system.settings_file import find_table

Kind: TypeAlias = Literal[
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
    "local",
    "scripted",
    "replay",
]
Mode: TypeAlias = Literal["direct", "batch"]
Structured: TypeAlias = Literal["json_schema", "tool", "json_object", "none"]
"""A way to get a value by a schema; the last two put the schema into the prompt."""

DEFAULT_WIDTH: Final = 4
ADAPTIVE_WIDTH: Final = 256
"""The width of a map whose adaptive lane limits the calls at once by itself."""
DEFAULT_OUTAGE: Final = 600.0  # seconds that a provider may be down before its lane is parked
# The package that an adapter imports, by the extra that installs it.
_EXTRAS: Final[Mapping[Kind, str]] = {"local": "xllamacpp"}


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """Settings of a provider's lane: its protocol, address, key and limits."""

    name: str
    kind: Kind = "openai"
    base_url: str | None = None  # may have `${NAME}` in it: `address` is without
    api_key_env: str | None = None
    api_key_file: str | None = None
    api_key_command: str | None = None  # prints the key; used if there is no other
    key_header: str | None = None  # the header of the key, if it is not the usual one of its kind
    # Requests at once; if the lane is adaptive, the number at which the search begins.
    width: int = DEFAULT_WIDTH
    # Whether its limits are found by search; not if the user has given a width.
    adaptive: bool = False
    capped: bool = False  # whether the width is set by the user, and never exceeded
    rpm: float | None = None
    tpm: float | None = None
    # Whether its limits are for all processes with runs in the same store.
    shared: bool = False
    budget: str | None = None  # of a shared lane: "20usd", or "20usd/day"
    price: FlatPrice | None = None
    timeout: float | None = None  # seconds after which a call fails
    first_byte: float | None = None  # seconds until the first byte of an answer
    outage: float = DEFAULT_OUTAGE  # seconds that the provider may be down
    max_tokens: str | None = None  # the endpoint's name for the bound on a reply's tokens
    # Further headers; a value of `env:NAME` is in the environment.
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    # Fields of every body; what a request sets goes before them.
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    drop: tuple[str, ...] = ()  # parameters that are never sent
    structured: Structured | None = None  # the way of structured output to start with
    proxy: str | None = None  # an address, `env:NAME` or `none`; by default the environment's
    ca_file: str | None = None  # certificates that are trusted beside the system's
    folder: str | None = None  # where `api_key_command` runs: the folder of the lane's file
    mode: Mode = "direct"  # how calls are made
    batch: BatchTerms = DEFAULT_TERMS  # how calls are gathered into batches
    reasoning: Effort | None = None  # of requests that don't say how much to think
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
    def account(self) -> str | None:
        """What distinguishes accounts at one address: the key, or the command that prints it."""
        return self.key or self.api_key_command

    @property
    def protocol(self) -> Kind:
        """The kind of its adapter: models named openai/... have Responses on OpenAI's own host."""
        if (self.name, self.kind) == ("openai", "openai") and self.address is not None:
            host = urlsplit(self.address).hostname or ""
            if host == _OPENAI_HOST or host.endswith(f".{_OPENAI_HOST}"):
                return "openai-responses"
        return self.kind

    @property
    def has_models(self) -> bool:
        """Whether it has models; a lane with only a width limits the steps of workflows."""
        return self.base_url is not None or self.kind not in HTTP_KINDS

    @property
    def wants_key(self) -> bool:
        """Whether it requires a key."""
        return bool(self.api_key_env or self.api_key_file or self.api_key_command)

    @property
    def lacks_key(self) -> bool:
        """Whether it requires a key that isn't there; a command is not run to find out."""
        return self.wants_key and self.api_key_command is None and self.key is None

    @property
    def address(self) -> str | None:
        """The base_url with the variables of the environment in it."""

        def value(found: re.Match[str]) -> str:
            return os.environ.get(found[1], "").strip().rstrip("/") or found[2] or ""

        return None if self.base_url is None else VARIABLE.sub(value, self.base_url)

    @property
    def own_proxy(self) -> str | None:
        """Its own proxy, empty for none; None if the environment decides."""
        if self.proxy is None:
            return None
        return "" if self.proxy == NO_PROXY else value_of(self.proxy)

    @property
    def variables(self) -> list[str]:
        """The environment variables that it needs and that are not set, besides its key's."""
        parts = VARIABLE.finditer(self.base_url or "")
        named = [part[1] for part in parts if part[2] is None]
        values = [*self.headers.values(), self.proxy or ""]
        named += [value.removeprefix(ENV) for value in values if value.startswith(ENV)]
        return [name for name in dict.fromkeys(named) if not os.environ.get(name, "").strip()]


# Providers that reject excess requests. A local server accepts every request and becomes slow, so
# its limit can't be found this way.
_NOT_ADAPTIVE: Final = ("ollama", "vllm", "llamacpp", "lmstudio", "local", "scripted", "replay")
_OPENAI_HOST: Final = "api.openai.com"

PROVIDERS: Final[Mapping[str, LaneSettings]] = {
    one.name: replace(one, adaptive=one.name not in _NOT_ADAPTIVE)
    for one in (
        LaneSettings("openai", "openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        LaneSettings("openai-chat", "openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
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
        LaneSettings(  # its models are the names of deployments
            "azure",
            "openai",
            "${AZURE_OPENAI_ENDPOINT}/openai/v1",
            "AZURE_OPENAI_API_KEY",
            key_header="api-key",
        ),
        LaneSettings(
            "bedrock",
            "openai",
            "https://bedrock-runtime.${AWS_REGION}.amazonaws.com/openai/v1",
            "AWS_BEARER_TOKEN_BEDROCK",
        ),
        LaneSettings(
            "vertex",
            "openai",
            "https://aiplatform.googleapis.com/v1/projects/${GOOGLE_CLOUD_PROJECT}"
            "/locations/global/endpoints/openapi",
            api_key_command="gcloud auth print-access-token",
            max_tokens="max_tokens",
        ),
        LaneSettings(
            "openrouter",
            "openai",
            "https://openrouter.ai/api/v1",
            "OPENROUTER_API_KEY",
            max_tokens="max_tokens",
        ),
        LaneSettings("groq", "openai", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        LaneSettings("xai", "openai", "https://api.x.ai/v1", "XAI_API_KEY"),
        LaneSettings(
            "together",
            "openai",
            "https://api.together.ai/v1",
            "TOGETHER_API_KEY",
            max_tokens="max_tokens",
        ),
        LaneSettings(
            "fireworks",
            "openai",
            "https://api.fireworks.ai/inference/v1",
            "FIREWORKS_API_KEY",
            max_tokens="max_tokens",
        ),
        LaneSettings("cerebras", "openai", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
        LaneSettings(
            "moonshot",
            "openai",
            "https://api.moonshot.ai/v1",
            "MOONSHOT_API_KEY",
            max_tokens="max_tokens",
        ),
        LaneSettings(
            "zai",
            "openai",
            "https://api.z.ai/api/paas/v4",
            "ZAI_API_KEY",
            max_tokens="max_tokens",
        ),
        LaneSettings("ollama", "openai", "http://127.0.0.1:11434/v1", max_tokens="max_tokens"),
        LaneSettings("vllm", "openai", "http://127.0.0.1:8000/v1", max_tokens="max_tokens"),
        LaneSettings("llamacpp", "openai", "http://127.0.0.1:8080/v1", max_tokens="max_tokens"),
        LaneSettings("lmstudio", "openai", "http://127.0.0.1:1234/v1", max_tokens="max_tokens"),
        LaneSettings("local", "local", width=8, price=FlatPrice(0.0, 0.0)),
        LaneSettings("scripted", "scripted", width=1_000_000, price=FlatPrice(0.0, 0.0)),
        LaneSettings("replay", "replay", width=1_000_000),
    )
}

# Providers with another name in the price table.
_PRICE_TABLE: Final[Mapping[str, str]] = {
    "gemini": "google",
    "openai-chat": "openai",
    "vertex": "google",
    "bedrock": "aws",
    "xai": "x-ai",
    "moonshot": "moonshotai",
}


def price_names(lane: LaneSettings, model: str) -> tuple[str, str]:
    """The provider and the model as the price table names them."""
    # Vertex names the publisher of a model too.
    table_name = model.removeprefix("google/") if lane.name == "vertex" else model
    return _PRICE_TABLE.get(lane.name, lane.name), table_name


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
        if not name or "/" in name or ":" in name:
            raise ValueError(
                f"{where}: a lane's name is the part before the / of its models' names, "
                "without / or :"
            )
        lane = _lane(name, given, where, lanes.get(name))
        lanes[name] = lane if folder is None else _placed(lane, given, folder)
    return lanes


def _placed(lane: LaneSettings, given: Mapping[str, Any], folder: Path) -> LaneSettings:
    """The lane, with the paths of its table relative to the folder of its file."""
    paths = {
        name: str(folder / Path(given[name]).expanduser())
        for name in ("api_key_file", "ca_file")
        if name in given
    }
    changes: dict[str, Any] = {**paths, "folder": str(folder)}
    return replace(lane, **changes)


def find_lanes(folder: Path | None = None) -> dict[str, LaneSettings]:
    """The lanes configured for `folder`.

    They are in `abreast.toml`, or in `[tool.abreast]` of pyproject.toml, in this folder or above.
    """
    found = find_table("lanes", folder)
    if found is None:
        return dict(PROVIDERS)
    table, path = found
    return read_lanes(table, str(path), path.parent)


def split_name(name: str, lanes: Mapping[str, LaneSettings]) -> tuple[LaneSettings, str]:
    """The lane of a model and the model's own name; raises `ModelUnknown` with the choices."""
    provider, slash, model = full_name(name).partition("/")
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
    hint = install_hint(lane.kind)
    return f"models named {lane.name}/... need {needed}, which is not installed: {hint}"


def refuses_files(lane: LaneSettings) -> str | None:
    """Why no model of a lane takes images and PDF files, in a sentence; None if one may."""
    if lane.kind != "local":
        return None
    return (
        f"models named {lane.name}/... can't see images and PDF files: they read text alone; "
        "choose a model of openai, anthropic or gemini"
    )


def check_keys(lanes: list[LaneSettings]) -> None:
    """`KeysMissing` for all lanes that lack a key, a variable or their certificates, at once.

    `ModelUnknown` where a package is missing.
    """
    for lane in lanes:
        if (why := missing_extra(lane)) is not None:
            raise ModelUnknown(why)
    by_name = {lane.name: lane for lane in lanes}
    missing = {name: why for name, lane in sorted(by_name.items()) if (why := missing_keys(lane))}
    if missing:
        wanted = "; ".join(f"{name} wants {why}" for name, why in missing.items())
        only_keys = not any(by_name[name].variables for name in missing)
        several = "keys are" if only_keys else "settings are"
        raise KeysMissing(
            f"{'a key is' if only_keys and len(missing) == 1 else several} missing: {wanted}"
        )
    for lane in by_name.values():
        if (why := certificate_fault(lane)) is not None:
            raise KeysMissing(why)


def missing_keys(lane: LaneSettings) -> str | None:
    """What a lane wants and doesn't have: its key, variables; None if it has everything."""
    wanted = [*([_key_source(lane)] if lane.lacks_key else [])]
    wanted += [f"the environment variable {name}" for name in lane.variables]
    return " and ".join(wanted) or None


def certificate_fault(lane: LaneSettings) -> str | None:
    """Why a lane's certificates can't be read, in a sentence that names the file; else None."""
    if lane.kind not in HTTP_KINDS or not (lane.address or "").startswith("https:"):
        return None
    from abreast.models.http.tls import tls_context

    try:
        tls_context(lane.ca_file)
    except ValueError as error:
        return f"{lane.name}: {error}"
    return None


def value_of(value: str) -> str:
    """A value of a lane's table: the variable's if it is `env:NAME`, else the value itself."""
    is_named = value.startswith(ENV)
    return os.environ.get(value.removeprefix(ENV), "").strip() if is_named else value


def _key_source(lane: LaneSettings) -> str:
    places = {"the environment variable": lane.api_key_env, "the file": lane.api_key_file}
    return " or ".join(f"{what} {name}" for what, name in places.items() if name)


def _check_shared(lane: LaneSettings, given: Mapping[str, Any], where: str) -> None:
    if not lane.shared:
        if lane.budget is not None:
            raise ValueError(
                f"{where}.budget is for a lane with shared = true; a run has its own, --budget"
            )
    elif lane.adaptive:
        why = "the limits of a shared lane are not found out"
        has = "adaptive = true" if given.get("adaptive") else "no width"
        raise ValueError(f"{where} has {has}, and {why}: give width = ..., for all processes")


def _lane(
    name: str, given: Mapping[str, Any], where: str, before: LaneSettings | None
) -> LaneSettings:
    lane = before or LaneSettings(name, max_tokens="max_tokens", adaptive=True)
    read = read_fields(given, where)
    own: dict[str, Any] = {"adaptive": False, "capped": True} if "width" in given else {}
    # A source of keys in the file goes before one that is built in.
    if "api_key_command" in given:
        own |= {"api_key_env": None, "api_key_file": None}
    elif "api_key_env" in given or "api_key_file" in given:
        own |= {"api_key_command": None}
    lane = replace(lane, **{"place": where, **own, **read})
    _check_shared(lane, given, where)
    if not lane.has_models and set(given) - {"shared"} != {"width"}:
        only = "; one that is only for steps of workflows has a width and at most `shared` besides"
        raise ValueError(f"{where} needs a base_url, such as http://127.0.0.1:8000/v1{only}")
    return lane
