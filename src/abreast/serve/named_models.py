"""Models that `abreast.toml` names for clients: several that are asked in turn, or a cached one."""

from collections.abc import Mapping
from typing import Final

from abreast.core.errors import ModelUnknown
from abreast.core.frozen import record
from abreast.models.lanes import LaneSettings, split_name
from abreast.models.port import full_name

MODELS: Final = "models"
_KEYS: Final = ("ask", "cache")


@record(frozen=True, slots=True)
class NamedModel:
    """`[serve.models.NAME]`: what a client gets that asks for the model NAME."""

    ask: tuple[str, ...]
    """Models as `provider/model`; each is asked if those before it gave no usable reply."""
    cache: bool = False
    """Whether an equal request is answered as it was before."""


def read_named_models(
    table: Mapping[str, object], place: str, lanes: Mapping[str, LaneSettings]
) -> dict[str, NamedModel]:
    """The models of a `[serve]` table; raises ValueError with the fault and its place."""
    if unknown := next((word for word in table if word != MODELS), None):
        raise ValueError(f"{place}: serve has no {unknown!r}; it has {MODELS}")
    models = table.get(MODELS, {})
    if not isinstance(models, Mapping):
        raise ValueError(f"{place}: serve.{MODELS} must be tables, such as [serve.models.careful]")
    return {
        name: _read(name, given, f"{place}: serve.models.{name}", lanes)
        for name, given in models.items()
    }


def _read(name: str, given: object, where: str, lanes: Mapping[str, LaneSettings]) -> NamedModel:
    if not name or "/" in name or ":" in name:
        raise ValueError(f"{where}: a name with / or : is that of a provider's model")
    if not isinstance(given, Mapping):
        raise ValueError(f'{where} must be a table, such as ask = ["local/smollm2"]')
    if unknown := next((word for word in given if word not in _KEYS), None):
        raise ValueError(f"{where} has no {unknown!r}; there are {', '.join(_KEYS)}")
    ask, cache = given.get("ask"), given.get("cache", False)
    if not isinstance(ask, list) or not ask or not all(isinstance(one, str) for one in ask):
        raise ValueError(f'{where}.ask must be a list of models, such as ["local/smollm2"]')
    if not isinstance(cache, bool):
        raise ValueError(f"{where}.cache must be true or false")
    try:
        for one in ask:
            split_name(one, lanes)
    except ModelUnknown as error:
        raise ValueError(f"{where}.ask: {error}") from None
    return NamedModel(tuple(full_name(one) for one in ask), cache)
