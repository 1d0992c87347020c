"""Deciders: hooks that are called before a map or step starts and may change its numbers."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from abreast.core.events import Observer
from abreast.core.window import whole
from abreast.run.map.options import MapOptions, check_timeout
from abreast.run.retry import Retry

_DECIDERS = ("before_map", "before_step", "before_sample")


@dataclass(frozen=True, slots=True)
class MapPlan:
    """The numbers of a map or step that is about to start.

    A decider returns those it wants changed, such as `{"width": 2}`.
    """

    path: str
    width: int
    span: int
    retries: int
    timeout: float | None


def observers_of(hooks: Sequence[object]) -> list[Observer]:
    """The hooks that observe events: those that are callable.

    Raises TypeError for a hook that is neither callable nor a decider.
    """
    observers: list[Observer] = []
    for hook in hooks:
        decides = any(hasattr(hook, name) for name in _DECIDERS)
        if callable(hook):
            observers.append(hook)
        elif not decides:
            raise TypeError(
                "a hook is a function of one event, or has before_map or before_step; "
                f"{hook!r} is neither"
            )
    return observers


async def ask_deciders(hooks: Sequence[object], path: str, options: MapOptions) -> MapOptions:
    """The options with the deciders' changes; ValueError names a hook with an invalid answer."""
    method = "before_step" if options.single else "before_map"
    for hook in hooks:
        decide = getattr(hook, method, None)
        if decide is None:
            continue
        retries = options.retry.retries if options.retry else 0
        answer = decide(MapPlan(path, options.width, options.span, retries, options.timeout))
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None:
            options = _apply_changes(options, answer, f"{method} of {name_of(hook)}")
    return options


def _apply_changes(options: MapOptions, answer: object, hook: str) -> MapOptions:
    if not isinstance(answer, Mapping):
        raise ValueError(f"{hook} must answer None or a mapping of numbers, not {answer!r}")
    unknown = [name for name in answer if name not in _CHANGES]
    if unknown:
        raise ValueError(f"{hook} may change {', '.join(_CHANGES)}, not {unknown[0]!r}")
    try:
        for (
            name,
            change,
        ) in _CHANGES.items():  # in this order: a span is checked against the new width
            if name in answer:
                options = change(options, answer[name])
    except ValueError as error:
        raise ValueError(f"{hook} answered with a number that can't be: {error}") from None
    return options


def _change_span(options: MapOptions, span: Any) -> MapOptions:
    if whole("span", span) < options.width:
        raise ValueError(f"span must be at least the width ({options.width}), not {span}")
    return replace(options, span=span)


def _change_retries(options: MapOptions, retries: Any) -> MapOptions:
    number = whole("retries", retries, least=0)
    return replace(options, retry=replace(options.retry or Retry(), retries=number))


_CHANGES: dict[str, Callable[[MapOptions, Any], MapOptions]] = {
    "width": lambda options, width: replace(
        options, width=whole("width", width), span=max(options.span, width)
    ),
    "span": _change_span,
    "retries": _change_retries,
    "timeout": lambda options, timeout: replace(options, timeout=check_timeout(timeout)),
}


def name_of(hook: object) -> str:
    """A hook's name for messages."""
    return getattr(hook, "__qualname__", type(hook).__qualname__)
