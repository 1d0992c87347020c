"""Which models answer a request: those that its name stands for, or its API."""

from collections.abc import Mapping
from dataclasses import field

from abreast.assembly.names import find_provider, open_model
from abreast.core.frozen import record
from abreast.models.lanes import Kind, LaneSettings, split_name
from abreast.models.port import full_name
from abreast.models.providers.provider import Provider
from abreast.run.calls.model import Caller
from abreast.serve.answers.stream_usage import StreamUsage
from abreast.serve.dialects.dialect import ApiDialect
from abreast.serve.named_models import NamedModel
from abreast.store.port import Store


@record(frozen=True, slots=True)
class Route:
    """Where a request goes."""

    name: str
    """`provider/model`, or the name that stands for several."""
    callers: tuple[Caller, ...]
    """The models; each is asked if those before it gave no usable reply."""
    relay: Provider | None
    """If the only model speaks the client's own dialect: what passes bodies on as they are."""
    cached: bool = False
    """Whether an equal request is answered as it was before."""
    stream_usage: StreamUsage = field(default_factory=StreamUsage)

    @property
    def caller(self) -> Caller:
        """The model that is asked first."""
        return self.callers[0]

    @property
    def model(self) -> str:
        """The first model as its provider names it."""
        return self.caller.name.partition("/")[2]


class Routes:
    """Finds models by the names that clients give, and keeps them open.

    A name of `named`, or such as `local/smollm2`, is that model. Another name without a provider is
    asked of `model`, if that is given; else of the lane `lane`; else of the provider whose API the
    client speaks.
    """

    def __init__(
        self,
        lanes: Mapping[str, LaneSettings],
        *,
        store: Store | None = None,
        lane: str | None = None,
        model: str | None = None,
        named: Mapping[str, NamedModel] | None = None,
        cached: bool = False,
    ) -> None:
        """`lanes` are the configured ones; `store` is for models named `replay/RUN`.

        With `cached`, answers of all models are kept for equal requests.
        """
        self._lanes = lanes
        self._named = named or {}
        self._cached = cached
        self._store = store
        self._lane = lane
        self._model = None if model is None else full_name(model)
        self._callers: dict[str, Caller] = {}
        self._relays: dict[tuple[str, Kind], Provider] = {}
        self._routes: dict[tuple[str, str], Route] = {}  # by dialect and the model as it is named

    @property
    def names(self) -> list[str]:
        """The models that are known by name so far."""
        known = ["local/smollm2"] if "local" in self._lanes else []
        first = [self._model] if self._model else known
        return list(dict.fromkeys([*first, *self._named, *self._callers]))

    def full_name(self, dialect: ApiDialect, asked: str) -> str:
        """The whole name of the model that a request means."""
        provider, slash, _ = asked.partition("/")
        if asked in self._named:
            return asked
        if slash and provider in self._lanes and self._lanes[provider].has_models:
            return asked
        if self._model is not None:
            return self._model
        return f"{self._lane or dialect.provider}/{asked}"

    def find(self, dialect: ApiDialect, asked: str) -> Route:
        """The route of a request; raises `ModelUnknown` or `KeysMissing`."""
        found = self._routes.get((dialect.name, asked))
        if found is None:
            found = self._routes[dialect.name, asked] = self._make(dialect, asked)
        return found

    def _make(self, dialect: ApiDialect, asked: str) -> Route:
        name = self.full_name(dialect, asked)
        named = self._named.get(name, NamedModel((name,)))
        callers = tuple(self._caller(one) for one in named.ask)
        cached = named.cache or self._cached
        if len(callers) > 1:
            return Route(name, callers, None, cached)
        (only,) = named.ask
        return Route(only, callers, self._relay(only, dialect), cached)

    def _caller(self, name: str) -> Caller:
        found = self._callers.get(name)
        if found is None:
            found = open_model(name, lanes=self._lanes, store=self._store, mode="direct")
            self._callers[name] = found
        return found

    def _relay(self, name: str, dialect: ApiDialect) -> Provider | None:
        settings, _ = split_name(name, self._lanes)
        kind = next((one for one in dialect.kinds if one in _spoken(settings)), None)
        if kind is None:
            return None
        found = self._relays.get((name, kind))
        if found is None:
            found = self._relays[name, kind] = find_provider(name, settings, kind)
        return found

    async def close(self) -> None:
        """Close all models."""
        for relay in self._relays.values():
            await relay.close()
        for caller in self._callers.values():
            await caller.close()


def _spoken(settings: LaneSettings) -> set[Kind]:
    """The APIs that a lane's server is known to have."""
    return {settings.kind, settings.protocol}
