"""The options of a map, checked once and then only read."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from abreast.core.frozen import record
from abreast.core.halting import Halting, OnError, Until
from abreast.core.window import Order, whole
from abreast.executors.port import Executor
from abreast.limits.lane import Holding, weights_of
from abreast.limits.limit import Weight
from abreast.run.retry import Retry

Effect: TypeAlias = Literal["pure", "idempotent", "once"]

OnChange: TypeAlias = Literal["refuse", "rerun"]

EFFECTS: tuple[Effect, ...] = ("pure", "idempotent", "once")
SPAN_IN_MEMORY = 4  # default span, in multiples of the width
SPAN_WITH_STORE = 64  # the same with a store, which keeps outcomes that wait for their turn


@record(frozen=True, slots=True)
class MapOptions:
    """The options of `run.map`, checked and converted."""

    name: str
    width: int
    span: int
    order: Order
    until: Until[Any]
    on_error: OnError
    lane: str | Callable[[Any], str] | None
    key: Callable[[Any], str] | None
    retry: Retry | None
    timeout: float | None
    effect: Effect
    hold: tuple[tuple[str, Weight], ...]
    executor: str | Executor | None
    on_change: OnChange = "refuse"
    single: bool = False


def check_options(
    fn: Callable[..., object],
    *,
    stored: bool,
    width: int,
    name: str | None = None,
    span: int | None = None,
    order: Order = "item",
    until: Until[Any] = None,
    on_error: OnError = "collect",
    lane: str | Callable[[Any], str] | None = None,
    key: Callable[[Any], str] | None = None,
    retry: int | Retry | None = None,
    timeout: float | None = None,
    effect: Effect = "pure",
    hold: Holding = None,
    executor: str | Executor | None = None,
    on_change: OnChange = "refuse",
    single: bool = False,
) -> MapOptions:
    """The checked options; ValueError or TypeError names the one that is invalid."""
    if not callable(fn):
        raise TypeError(f"map needs a function to call with each item, not {fn!r}")
    whole("width", width)
    if span is None:
        span = width * (SPAN_WITH_STORE if stored else SPAN_IN_MEMORY)
    elif whole("span", span) < width:
        raise ValueError(f"span must be at least the width ({width}), not {span}")
    if order not in ("item", "completion"):
        raise ValueError(f"order must be 'item' or 'completion', not {order!r}")
    if effect not in EFFECTS:
        raise ValueError(f"effect must be one of {', '.join(EFFECTS)}, not {effect!r}")
    if on_change not in ("refuse", "rerun"):
        raise ValueError(f"on_change must be 'refuse' or 'rerun', not {on_change!r}")
    if key is not None and not callable(key):
        raise TypeError(f"key must be a function of the item, not {key!r}")
    if lane is not None and not callable(lane) and not isinstance(lane, str):
        raise TypeError(f"lane must be a lane's name or a function of the item, not {lane!r}")
    Halting(until, on_error)
    return MapOptions(
        name=check_name(name if name is not None else name_of(fn)),
        width=width,
        span=span,
        order=order,
        until=until,
        on_error=on_error,
        lane=lane,
        key=key,
        retry=Retry.of(retry),
        timeout=check_timeout(timeout),
        effect=effect,
        hold=weights_of(hold),
        executor=executor,
        on_change=on_change,
        single=single,
    )


def check_timeout(timeout: Any) -> float | None:
    """A timeout in seconds, or None."""
    if timeout is None:
        return None
    number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if not number or not math.isfinite(timeout) or timeout <= 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
    return float(timeout)


def check_name(name: Any) -> str:
    """A name that can be part of a path."""
    if not isinstance(name, str) or not name or "\0" in name or "\n" in name:
        raise ValueError(f"a name must be a line of text, not {name!r}")
    return name


def name_of(fn: Callable[..., object]) -> str:
    """A function's name, for a map without a name of its own."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", type(fn).__name__)
    return "lambda" if name == "<lambda>" else name
