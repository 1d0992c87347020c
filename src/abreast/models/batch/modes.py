"""How the calls of a lane are made: directly or in batches, in which tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from abreast.core.frozen import record
from abreast.models.batch.terms import FALLBACKS, Fallback
from abreast.models.lanes import LaneSettings, Mode

MODES: Final[tuple[Mode, ...]] = ("direct", "batch")
TIERS: Final = ("flex",)
# Providers with OpenAI's chat API whose batches are none, or are others.
_WITHOUT_BATCHES: Final = (
    *("mistral", "deepseek", "bedrock", "vertex", "openrouter", "xai", "together", "fireworks"),
    *("cerebras", "moonshot", "zai", "ollama", "vllm", "llamacpp", "lmstudio"),
)
_BATCHING_KINDS: Final = ("openai", "openai-responses", "anthropic", "gemini")


@record(frozen=True, slots=True)
class CallMode:
    """What is asked of calls, beside the settings of their lane; None for what they say."""

    mode: Mode | None = None
    fallback: Fallback | None = None
    """What becomes of calls that a batch leaves without an answer."""
    wait: float | None = None
    """Seconds after which a run that waits for batches is parked."""
    tier: str | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("mode", self.mode, MODES),
            ("batch_fallback", self.fallback, FALLBACKS),
            ("tier", self.tier, TIERS),
        ):
            if value is not None and value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")

    @property
    def is_usual(self) -> bool:
        """Whether nothing is asked."""
        return self == _USUAL

    def lane(self, lane: LaneSettings) -> LaneSettings:
        """The lane as asked; ValueError if its provider has no batches, or no such tier."""
        if self.is_usual:
            return lane
        if self.mode == "batch" and not has_batches(lane):
            raise ValueError(
                f"{lane.name} has no batches; openai, anthropic, gemini and lanes of your own have"
            )
        if self.tier is not None and not has_tiers(lane):
            raise ValueError(f"{lane.name} has no tier {self.tier}; openai has")
        terms = replace(
            lane.batch,
            fallback=self.fallback or lane.batch.fallback,
            wait=lane.batch.wait if self.wait is None else self.wait,
        )
        tier = {} if self.tier is None else {"service_tier": self.tier}
        extra = {**lane.extra, **tier}
        return replace(lane, mode=self.mode or lane.mode, batch=terms, extra=extra)

    def lanes(self, lanes: Mapping[str, LaneSettings]) -> dict[str, LaneSettings]:
        """All lanes as asked, as far as their providers can."""
        return {name: self._as_far(lane) for name, lane in lanes.items()}

    def _as_far(self, lane: LaneSettings) -> LaneSettings:
        mode = None if self.mode == "batch" and not has_batches(lane) else self.mode
        return replace(self, mode=mode, tier=self.tier if has_tiers(lane) else None).lane(lane)


_USUAL: Final = CallMode()


def has_batches(lane: LaneSettings) -> bool:
    """Whether its provider has batches, as far as is known; lanes of the user's own may."""
    return lane.protocol in _BATCHING_KINDS and lane.name not in _WITHOUT_BATCHES


def has_tiers(lane: LaneSettings) -> bool:
    """Whether its requests can have a `service_tier`."""
    return lane.protocol in ("openai", "openai-responses") and lane.name not in _WITHOUT_BATCHES


def tier_of(lane: LaneSettings) -> str | None:
    """The tier of its requests."""
    tier = lane.extra.get("service_tier")
    return tier if tier in TIERS else None
