"""The nine scenarios: a storm, and calls that take some minutes of it."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from math import log2
from typing import Any

from abreast.testing.storm.settings import Settings, make_settings
from abreast.testing.storm.world import WorldRequest


@dataclass(frozen=True, slots=True)
class Scenario:
    """A world, and what is asked of it."""

    name: str
    settings: Settings
    calls: tuple[WorldRequest, ...]
    slow: float = 1.0
    """Over loopback, times as slow as the others.

    Where calls are short, what this machine does with each is felt.
    """


def requests(n: int, seed: int, sizes: tuple[int, int] = (100, 100)) -> tuple[WorldRequest, ...]:
    """Calls whose input has so many tokens, drawn evenly by their magnitude."""
    draw = random.Random(seed)
    low, high = (log2(size) for size in sizes)
    return tuple(
        WorldRequest(
            f"call {number}", round(2.0 ** draw.uniform(low, high)), None, draw.randint(8, 32)
        )
        for number in range(n)
    )


def _scenario(
    name: str, n: int, sizes: tuple[int, int] = (100, 100), slow: float = 1.0, **settings: Any
) -> Scenario:
    return Scenario(name, make_settings(settings), requests(n, 1, sizes), slow)


def five_providers() -> list[Scenario]:
    """The ninth: five lanes that know nothing of each other, one of them slow.

    All would be done after some minutes.
    """
    lanes = [
        _scenario("five: rpm", 1_800, rpm=600, burst=20, latency=1, noise=0.5),
        _scenario("five: small rpm", 240, rpm=80, burst=5, latency=2, noise=1),
        _scenario(
            "five: tpm", 500, (100, 5_000), tpm=200_000, rpm=6_000, latency=1, per_token=0.02
        ),
        _scenario(
            "five: concurrency", 1_400, concurrency=12, latency=1, noise=0.5, headers="absent"
        ),
        _scenario("five: slow", 900, rpm=300, burst=10, latency=20, noise=5),
    ]
    return [replace(lane, slow=2) for lane in lanes]  # six processes share this machine


def scenarios() -> list[Scenario]:
    """Eight of the nine; the ninth is `five_providers`."""
    steps = ((60, {"rpm": 150}), (240, {"rpm": 900}))
    return [
        _scenario("rpm, short", 2_400, rpm=600, latency=0.5, noise=0.2),
        _scenario("rpm, long", 2_400, rpm=600, latency=25, noise=5),
        _scenario(
            "tpm, mixed sizes",
            200,
            (100, 30_000),
            tpm=200_000,
            rpm=6_000,
            latency=1,
            per_token=0.01,
        ),
        _scenario(
            "concurrency, no headers",
            3_200,
            slow=2.5,
            concurrency=20,
            latency=1,
            noise=0.3,
            headers="absent",
        ),
        _scenario("tiny tier", 15, rpm=3, latency=2),
        _scenario("step", 2_700, rpm=600, latency=1, steps=steps),
        _scenario("Retry-After 89 s", 1_800, rpm=600, latency=1, retry_after=89.0, burst=10),
        _scenario("neighbour", 1_500, rpm=600, latency=1, neighbour=0.5),
    ]
