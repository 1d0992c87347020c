"""Creates the store, executor or model that a name stands for; `open_run` and `open_model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from abreast.core.clock import SYSTEM_CLOCK, Clock
from abreast.core.errors import StoreReadOnly
from abreast.core.frozen import record
from abreast.executors.names import find_executor
from abreast.executors.port import DRIVER, Executor
from abreast.limits.budget import Budget
from abreast.limits.lane import LaneLimits, Lanes
from abreast.run.context import Opening
from abreast.run.lifetime import RESUME
from abreast.run.run import Resume, Run
from abreast.store.postgres.address import FORM as POSTGRES_FORM
from abreast.store.postgres.address import SCHEMES as POSTGRES_SCHEMES

if TYPE_CHECKING:
    from abreast.limits.shared.ledger import Terms
    from abreast.models.batch.terms import Fallback
    from abreast.models.http.client import HttpOptions
    from abreast.models.http.key_command import KeyCommand
    from abreast.models.lanes import Kind, LaneSettings, Mode
    from abreast.models.port import Model, Reply, Request
    from abreast.models.price import Price
    from abreast.models.providers.accepted_form import AcceptedForm
    from abreast.models.providers.provider import Provider
    from abreast.run.calls.lane import ModelLane
    from abreast.run.calls.learned_forms import LearnedForms
    from abreast.run.calls.model import Caller
    from abreast.run.retry import Retry
    from abreast.store.port import JsonValue, Store


# A lane lives as long as a model uses it: models of one provider share its limits, in one process.
_LANES: WeakValueDictionary[tuple[object, ...], ModelLane] = WeakValueDictionary()
_FORMS: WeakValueDictionary[tuple[object, ...], LearnedForms] = WeakValueDictionary()
_KEY_COMMANDS: WeakValueDictionary[tuple[object, ...], KeyCommand] = WeakValueDictionary()


def open_run(
    name: str,
    *,
    store: str | PathLike[str] | Store | None = None,
    lanes: Mapping[str, LaneLimits] | None = None,
    budget: Budget | str | None = None,
    seed: int | None = None,
    executor: str | Executor = "local",
    resume: Resume = "auto",
    hooks: Sequence[object] = (),
    tags: Sequence[str] = (),
    kind: str = "script",
    run_id: str | None = None,
    retry_keys: Sequence[str] = (),
    manifest: Mapping[str, JsonValue] | None = None,
    redact: Callable[[str, object], object] | None = None,
    types: Sequence[type] = (),
    clock: Clock = SYSTEM_CLOCK,
) -> Run:
    """Make a run, for `async with abreast.open_run("summaries", store="runs.db") as run:`.

    Args:
        name: what the run is called; the first part of every path in it.
        store: a path, a URL such as `postgresql://ann@db/runs`, or a Store; None for a run that
            lives in memory.
        lanes: names for limits: `{"openai": Slots(8), "slow": [Slots(1), Rate(30)]}`.
        budget: a cap for everything in it: `Budget(requests=500)` or `"500req,20usd,10min"`.
        seed: makes its seeds repeatable; drawn and recorded if None.
        executor: where items run unless a map says otherwise: `"local"` (tasks and threads),
            `"process"`, or `"ray"` (the nodes of a cluster; `"ray:GPU=1"` for what a call takes).
        resume: `"auto"` resumes the newest run of that name in the store if it has not ended, else
            starts a new one; `"never"` starts a new one; `"must"` resumes one or raises
            `NoSuchRun`; `"retry"` resumes, also one that has ended, and runs failed items again;
            `"failed"` does too, but does not repeat `once` work whose outcome is unknown.
        hooks: functions that get every event, and objects with `before_map` or `before_step` that
            may change numbers.
        tags: words to find it by.
        kind: which job it is; `"script"` for your own.
        run_id: resume this run and no other; with `resume="never"`, the id of the new one,
            `RunExists` if it is taken.
        retry_keys: with `resume="retry"`, the keys of the failed items to run again; all of them if
            none are named.
        manifest: facts to record about it, beside the script, arguments, directory, versions and
            git commit.
        redact: called with (path, value) before a value is written; what it returns is written, and
            is the value of the outcome.
        types: your dataclasses, enums, named tuples and pydantic models that recorded values may
            have. Only needed for those that your program has not imported when it resumes: a
            store's types are never imported by name.
        clock: for tests in virtual time.

    Raises (when the block is entered):
        RunBusy: another driver is on the run.
        StoreError: the store can't be used.
        NoSuchRun: there is no run to resume.
    """
    if resume not in RESUME:
        raise ValueError(f"resume must be one of {', '.join(RESUME)}, not {resume!r}")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise TypeError(f"seed must be a whole number, not {seed!r}")
    default = find_executor(executor)
    own = Budget.parse(budget) if isinstance(budget, str) else budget
    opening = Opening(
        clock=clock,
        executor=lambda given: default if given is None else find_executor(given),
        store=None if store is None else lambda: find_store(store),
        own_store=isinstance(store, (str, PathLike)),
        seed=seed,
        resume=resume,
        run_id=run_id,
        kind=kind,
        tags=tuple(tags),
        hooks=tuple(hooks),
        manifest=dict(manifest or {}),
        redact=redact,
        retry_keys=frozenset(retry_keys),
        types=_types_by_name(types),
    )
    return Run(name, lanes=Lanes(lanes, own), budget=own, opening=opening)


def _types_by_name(types: Sequence[type]) -> Mapping[str, type]:
    if not types:
        return {}
    from abreast.store.codec.named_types import types_by_name

    return types_by_name(types)


def find_store(
    given: str | PathLike[str] | Store, *, busy_timeout: float = 30.0, reads: bool = False
) -> Store:
    """Return the store that a path, a URL or a Store stands for.

    It waits up to `busy_timeout` seconds for a locked file, or for a server that is starting.

    With `reads`, a store that can't be written is read from a copy: later changes are not seen.
    ValueError if the name stands for no store; it never has a password in it.
    """
    if not isinstance(given, (str, PathLike)):
        return given
    text = fspath(given)
    scheme, separator, rest = text.partition("://")
    if separator and scheme in POSTGRES_SCHEMES:
        return _postgres_store(text, busy_timeout)
    if separator and scheme not in ("sqlite", "file"):
        raise ValueError(
            f"there is no store for {scheme}://; a path such as runs.db is an SQLite store, "
            f"{POSTGRES_FORM} one in PostgreSQL"
        )
    from abreast.store.sqlite.store import SqliteStore

    path = rest if separator else text
    try:
        return SqliteStore(path, busy_timeout=busy_timeout)
    except StoreReadOnly:
        if not reads or not Path(path).is_file():
            raise
        from abreast.store.read_only_copy import CopiedStore

        return CopiedStore(path, busy_timeout=busy_timeout)


def _postgres_store(url: str, busy_timeout: float) -> Store:
    try:
        from abreast.store.postgres.store import PostgresStore
    except ImportError:
        from abreast.system.installation import install_hint

        raise ValueError(
            "a store in PostgreSQL needs psycopg, which is not installed: "
            + install_hint("postgres")
        ) from None
    return PostgresStore(url, busy_timeout=busy_timeout)


def find_damaged_store(place: str) -> Store:
    """Return a copy of a store to recover from; the original is only read. ValueError for a URL."""
    scheme, separator, rest = place.partition("://")
    if separator and scheme not in ("sqlite", "file"):
        raise ValueError(f"{scheme}:// is a database with a recovery of its own")
    from abreast.store.read_only_copy import CopiedStore

    return CopiedStore(rest if separator else place)


def open_model(
    name: str,
    *,
    lanes: Mapping[str, LaneSettings] | None = None,
    store: str | PathLike[str] | Store | None = None,
    cache: bool = False,
    retry: int | Retry | None = None,
    warm: bool = False,
    mode: Mode | None = None,
    batch_fallback: Fallback | None = None,
    batch_wait: float | None = None,
    tier: Literal["flex"] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Caller:
    """Make a model, for `async with abreast.open_model("local/smollm2") as model:`.

    Args:
        name: `provider/model` or `provider:model`: a provider of `abreast models`, such as openai
            or ollama, a lane of `abreast.toml`, `local/` (in this process, without a key),
            `scripted/FILE`, `replay/RUN`.
        lanes: how providers are reached and limited; by default what `abreast.toml` says.
        store: where `replay/RUN` and the cache are.
        cache: answer a request from the store if an equal one was answered before.
        retry: further attempts after a 5xx, a lost connection or a timeout; 4 by default. A 429
            and an outage (503, 529) do not count as attempts.
        warm: of requests with an equal, long `shared_prefix` send one ahead, so that the others
            find it in the provider's cache.
        mode: `"batch"` makes the calls in batches, for about half the price within a day: for
            items of a run whose function is `async`, with OpenAI, Anthropic and Gemini; by default
            what the lane says.
        batch_fallback: what becomes of calls that a batch leaves without an answer: `"batch"` puts
            them into the next one (the default), `"direct"` makes them directly.
        batch_wait: seconds after which a run that only waits for batches ends with `LaneParked`,
            to be resumed later; by default it waits for them.
        tier: `"flex"` for slower calls at a lower price, with OpenAI.
        clock: for tests in virtual time.

    Raises:
        ModelUnknown: there is no such provider.
        KeysMissing: its key isn't set.
        NoSuchRun: there is no run to replay.
    """
    from abreast.models.batch.modes import CallMode, tier_of
    from abreast.models.lane_fields import HTTP_KINDS
    from abreast.models.lanes import check_keys, find_lanes, price_names, split_name
    from abreast.models.port import full_name
    from abreast.models.price import BATCH, FLEX, find_price, reduced_price
    from abreast.run.calls.cache import Replay, StoreCache
    from abreast.run.calls.model import CALL_RETRY, Caller, ForwardedCaller
    from abreast.run.retry import Retry

    name = full_name(name)
    if DRIVER.get() is not None:
        # In an item of another process: the driver has the keys, the lanes and the journal.
        if mode == "batch":
            raise ValueError(f"{name}: only items in the run's own process can wait for a batch")
        options = {
            "lanes": lanes,
            "store": store,
            "cache": cache,
            "retry": retry,
            "warm": warm,
            "tier": tier,
        }
        return ForwardedCaller(name, partial(OpenedModelCall, name, options))
    settings, model = split_name(name, find_lanes() if lanes is None else lanes)
    settings = CallMode(mode, batch_fallback, batch_wait, tier).lane(settings)
    check_keys([settings])
    price: Price | None = settings.price
    if price is None and settings.kind in HTTP_KINDS:
        price = find_price(*price_names(settings, model))
    prices = price_names(settings, model)
    if tier_of(settings) is not None:
        price = reduced_price(price, *prices, FLEX)
    if cache and store is None:
        raise ValueError("a cache is in a store: give store=")
    opened_store = find_store(store) if store is not None else None
    own_store = opened_store if isinstance(store, (str, PathLike)) else None
    try:
        bare = find_model(name, settings, model, opened_store)
    except BaseException:
        if own_store is not None:
            own_store.close()
        raise
    caller = Caller(
        _traced(bare),
        lane_of(settings),
        price=price,
        retry=CALL_RETRY if retry is None else Retry.of(retry),
        paid=settings.kind not in ("local", "scripted", "replay"),
        cache=StoreCache(opened_store) if cache and opened_store is not None else None,
        own_store=own_store,
        replays=bare.recorded_name if isinstance(bare, Replay) else None,
        warm=warm,
        reasoning=settings.reasoning,
        clock=clock,
    )
    if settings.mode == "direct":
        return caller
    from abreast.models.batch.services import find_service
    from abreast.run.calls.batch.caller import BatchCaller

    service = find_service(bare)
    if service is None:
        raise ValueError(f"{name} can't be called in batches: openai, anthropic and gemini can")
    return BatchCaller(caller, service, settings.batch, price=reduced_price(price, *prices, BATCH))


@record(frozen=True, slots=True)
class OpenedModelCall:
    """A request to a model that was opened in an item of another process."""

    name: str
    options: Mapping[str, Any]
    request: Request

    async def __call__(self) -> Reply:
        """Answer it, in the driver."""
        async with open_model(self.name, **self.options) as model:
            return await model.complete(self.request)


def as_caller(model: Model | Caller) -> Caller:
    """Wrap a model in a Caller: lane, retries, journal. A Caller is returned as it is."""
    from abreast.run.calls.lane import ModelLane
    from abreast.run.calls.model import Caller

    return (
        model
        if isinstance(model, Caller)
        else Caller(model, ModelLane(model.name.partition("/")[0]))
    )


def find_model(name: str, settings: LaneSettings, model: str, store: Store | None) -> Model:
    """Return the bare model of that name: one attempt per call, no limits."""
    if settings.kind == "replay":
        return _replay(name, model, store)
    if settings.kind == "scripted":
        from abreast.models.scripted import Scripted

        return Scripted(Path(model), name=name)
    return _MODELS[settings.protocol](name, settings)


def find_provider(name: str, settings: LaneSettings, kind: Kind) -> Provider:
    """Return the provider of a model for requests of one API, such as `anthropic`.

    It may be another API than that of `open_model`: OpenAI's own host has two.
    """
    from abreast.models.providers.provider import Provider

    found = _MODELS[kind](name, settings)
    if not isinstance(found, Provider):
        raise TypeError(f"{kind} is no API")
    return found


def _traced(model: Model) -> Model:
    from abreast.models.tracing import TracedModel, is_wanted

    return TracedModel(model) if is_wanted() else model


def _openai(name: str, settings: LaneSettings) -> Model:
    from abreast.models.providers.openai import OpenAI

    return OpenAI(
        name,
        settings.address or "",
        _key(settings),
        max_tokens=settings.max_tokens or "max_completion_tokens",
        seed="random_seed" if settings.name == "mistral" else "seed",
        form=_form(name, settings),
        lane=settings,
        **_wire(settings),
    )


def _openai_responses(name: str, settings: LaneSettings) -> Model:
    from abreast.models.providers.responses import OpenAIResponses

    form, url = _form(name, settings), settings.address or ""
    return OpenAIResponses(name, url, _key(settings), form=form, lane=settings, **_wire(settings))


def _anthropic(name: str, settings: LaneSettings) -> Model:
    from abreast.models.providers.anthropic import Anthropic

    form, url = _form(name, settings), settings.address or ""
    return Anthropic(name, url, _key(settings), form=form, lane=settings, **_wire(settings))


def _gemini(name: str, settings: LaneSettings) -> Model:
    from abreast.models.providers.gemini import Gemini

    form, url = _form(name, settings), settings.address or ""
    return Gemini(name, url, _key(settings), form=form, lane=settings, **_wire(settings))


def _form(name: str, settings: LaneSettings) -> AcceptedForm:
    """What is known of the requests that a model accepts: one record in this process."""
    from abreast.run.calls.learned_forms import LearnedForms

    key = settings.name, settings.address
    forms = _FORMS.get(key)
    if forms is None:
        forms = _FORMS.setdefault(key, LearnedForms(*key))
    return forms.of(name.partition("/")[2])


def _key(settings: LaneSettings) -> str | None:
    """The key of a lane, or the placeholder of one that a command will print."""
    from abreast.models.http.client import KEY_PLACE

    return settings.key or (KEY_PLACE if settings.api_key_command else None)


def _wire(settings: LaneSettings) -> HttpOptions:
    from abreast.models.lane_fields import ENV
    from abreast.models.lanes import value_of

    secret = {key: value for key, value in settings.headers.items() if value.startswith(ENV)}
    wire: HttpOptions = {
        "headers": {key: value_of(value) for key, value in secret.items()},
        "plain_headers": {
            key: value for key, value in settings.headers.items() if key not in secret
        },
        "key_header": settings.key_header,
        "key_command": None if settings.key else _key_command(settings),
        "proxy": settings.own_proxy,
        "ca_file": settings.ca_file,
    }
    if settings.timeout is not None:
        wire |= {"stall": settings.timeout, "total": settings.timeout}
    if settings.first_byte is not None:
        wire["first_byte"] = settings.first_byte
    return wire


def _key_command(settings: LaneSettings) -> KeyCommand | None:
    """The command of a lane's key; all models of the lane share one, and so its key."""
    from abreast.models.http.key_command import KeyCommand

    if settings.api_key_command is None:
        return None
    place = (settings.api_key_command, settings.folder, settings.place)
    command = KeyCommand(settings.api_key_command, settings.place, settings.folder)
    return _KEY_COMMANDS.setdefault(place, command)


def _local(name: str, settings: LaneSettings) -> Model:
    from abreast.models.embedded.model import EmbeddedModel

    return EmbeddedModel(name, slots=settings.width)


_MODELS: Mapping[str, Callable[[str, LaneSettings], Model]] = {
    "openai": _openai,
    "openai-responses": _openai_responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "local": _local,
}


def _replay(name: str, model: str, store: Store | None) -> Model:
    from abreast.run.calls.cache import Replay

    if store is None:
        raise ValueError(f"{name}: the run to replay is in a store: give store=")
    run_id, _, recorded_model = model.partition("/")
    return Replay(store, run_id, recorded_model or None)


def lane_of(settings: LaneSettings) -> ModelLane:
    """Return the lane of a provider with these settings.

    There is one in this process, for as long as a model uses it.
    """
    from abreast.limits.rate import Rate
    from abreast.limits.slots import Slots
    from abreast.run.calls.lane import ModelLane

    numbers = (settings.width, settings.rpm, settings.tpm, settings.adaptive, settings.capped)
    key = (settings.name, settings.address, settings.outage, settings.shared, *numbers)
    if (lane := _LANES.get(key)) is not None:
        return lane
    if settings.shared:
        lane = ModelLane(
            settings.name,
            held=[Slots(settings.width)],
            terms=_terms(settings),
            outage=settings.outage,
        )
    elif settings.adaptive:
        lane = _adaptive_lane(settings)
    else:
        requests = [] if settings.rpm is None else [Rate(settings.rpm)]
        tokens = [] if settings.tpm is None else [Rate(settings.tpm, of="tokens")]
        lane = ModelLane(
            settings.name,
            [Slots(settings.width), *requests, *tokens],
            outage=settings.outage,
        )
    return _LANES.setdefault(key, lane)


def _terms(settings: LaneSettings) -> Terms:
    """The limits that all processes share; ValueError if the budget is none."""
    from abreast.limits.shared.ledger import read_terms

    rates = {"requests": settings.rpm, "tokens": settings.tpm}
    try:
        return read_terms(
            settings.width,
            {name: rate for name, rate in rates.items() if rate is not None},
            settings.budget,
        )
    except ValueError as error:
        raise ValueError(f"{settings.place}.budget: {error}") from None


def _adaptive_lane(settings: LaneSettings) -> ModelLane:
    """Make a lane that measures its limits, starting from those that were learned before.

    Numbers that the user has set are kept.
    """
    from abreast.limits.governor.governor import Costs, Governor, GovernorLimit
    from abreast.limits.slots import Slots
    from abreast.run.calls.lane import ModelLane
    from abreast.run.calls.learned_limits import LearnedLimits

    given: dict[str, float | None] = {"requests": settings.rpm, "tokens": settings.tpm}
    rates: Costs = {name: rate for name, rate in given.items() if rate is not None}  # type: ignore[misc]
    profile = LearnedLimits(settings.name, settings.address, settings.account)
    learned = profile.read()
    max_calls = _max_open_calls()
    governor = Governor(
        start=settings.width,
        cap=min(settings.width, max_calls) if settings.capped else max_calls,
        rates=rates,
        known=learned.known if learned else None,
    )
    return ModelLane(
        settings.name,
        governed=GovernorLimit(governor),
        profile=profile,
        held=[Slots(settings.width)],
        outage=settings.outage,
    )


def _max_open_calls() -> int:
    """Return how many calls can be in flight: each has a socket, and the system bounds open files.

    100 files are reserved for everything else.
    """
    try:
        import resource
    except ImportError:  # not on this system
        return 400
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 100_000 if allowed == resource.RLIM_INFINITY else max(4, allowed - 100)
