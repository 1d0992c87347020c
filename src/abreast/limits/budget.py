"""A cap on requests, tokens, money or time: reserved before, settled after, never exceeded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from abreast.core.errors import BudgetSpent
from abreast.core.outcome import Usage
from abreast.limits.limit import WHENEVER, Need, WaitingLine, is_positive, requests_used

_UNITS: dict[str, tuple[str, float]] = {
    "req": ("requests", 1),
    "requests": ("requests", 1),
    "tok": ("tokens", 1),
    "tokens": ("tokens", 1),
    "usd": ("usd", 1),
    "$": ("usd", 1),
    "s": ("seconds", 1),
    "sec": ("seconds", 1),
    "min": ("seconds", 60),
    "h": ("seconds", 3600),
}
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
_AMOUNT = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<scale>[kKM]?)(?P<unit>[a-z$]+)\s*")
_ROUNDING_TOLERANCE = 1e-9

DIMENSIONS = ("requests", "tokens", "usd")


class Budget:
    """Caps that a run may not exceed; a dimension left out has no cap.

    A need that doesn't fit beside what is spent and reserved waits for settlements; `BudgetSpent`
    is raised only when nothing in flight could still make room.

        abreast.open_run("study", budget=Budget(requests=500, usd=20))
        abreast.open_run("study", budget="500req,2Mtok,20usd,10min")

    Args:
        requests: model calls, and attempts of items that call no model.
        tokens: input and output together.
        usd: US dollars.
        seconds: time since the run was opened, of all its drivers together.
    """

    lent = False
    charged = True

    __slots__ = ("_started_at", "caps", "line", "reserved", "seconds", "spent")

    def __init__(
        self,
        *,
        requests: int | None = None,
        tokens: int | None = None,
        usd: float | None = None,
        seconds: float | None = None,
    ) -> None:
        given = {"requests": requests, "tokens": tokens, "usd": usd, "seconds": seconds}
        for name, cap in given.items():
            if cap is not None and not is_positive(cap):
                raise ValueError(f"a budget's {name} must be a positive number, not {cap!r}")
        if all(cap is None for cap in given.values()):
            raise ValueError("a budget needs at least one of requests, tokens, usd, seconds")
        self.caps: dict[str, float] = {
            name: cap for name, cap in given.items() if cap is not None and name != "seconds"
        }
        self.seconds = seconds
        self.line = WaitingLine()
        self.spent: dict[str, float] = dict.fromkeys((*DIMENSIONS, "seconds"), 0)
        self.reserved: dict[str, float] = dict.fromkeys(DIMENSIONS, 0)
        self._started_at: float | None = None

    def __repr__(self) -> str:
        parts = [
            f"{self.spent[name]:g}+{self.reserved[name]:g}/{cap:g} {name}"
            for name, cap in self.caps.items()
        ]
        if self.seconds is not None:
            parts.append(f"{self.seconds:g} s")
        return f"<Budget {', '.join(parts)}>"

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parse a budget with units: `50req`, `2Mtok`, `20usd`, `10min`, several by comma."""
        caps: dict[str, float] = {}
        for part in text.split(","):
            match = _AMOUNT.fullmatch(part)
            unit = _UNITS.get(match["unit"]) if match else None
            if match is None or unit is None:
                raise ValueError(
                    f"{part.strip()!r} is no amount; "
                    "write 50req, 2Mtok, 20usd or 10min, several by comma"
                )
            name, factor = unit
            if name in caps:
                raise ValueError(f"the budget names {name} twice")
            caps[name] = float(match["number"]) * _SCALE[match["scale"]] * factor
        return cls(
            requests=_whole("requests", caps.get("requests")),
            tokens=_whole("tokens", caps.get("tokens")),
            usd=caps.get("usd"),
            seconds=caps.get("seconds"),
        )

    def begin(self, now: float) -> None:
        """Start the clock of `seconds`, unless it runs already."""
        if self._started_at is None:
            self._started_at = now

    def deadline(self) -> float | None:
        """When the time runs out, once the clock has started; None without a cap on time."""
        if self.seconds is None or self._started_at is None:
            return None
        return self._started_at + self.seconds - self.spent["seconds"]

    def restore(self, spent: Mapping[str, float]) -> None:
        """Continue from what earlier drivers of the run have spent."""
        for name in self.spent:
            self.spent[name] += spent.get(name, 0)

    def snapshot(self, now: float) -> dict[str, float]:
        """What is spent so far, including the running clock.

        Reserved amounts count as spent until they are settled.
        """
        total = {name: self.spent[name] + self.reserved[name] for name in DIMENSIONS}
        total["seconds"] = self.spent["seconds"] + (
            0.0 if self._started_at is None else max(0.0, now - self._started_at)
        )
        return {name: amount for name, amount in total.items() if amount}

    def refusal(self, need: Need, now: float) -> float | None:
        """None if it fits; `WHENEVER` if a settlement could make room.

        Raises `BudgetSpent` if nothing can.
        """
        deadline = self.deadline()
        if deadline is not None and now >= deadline:
            raise BudgetSpent(f"the budget of {self.seconds:g} seconds is spent", self)
        waits = False
        for name, cap in self.caps.items():
            amount = getattr(need, name)
            # Also if nothing is needed: no settlement undoes an overdraft.
            if self.spent[name] + amount > cap + _ROUNDING_TOLERANCE:
                spent = f"{self.spent[name]:g} of {cap:g} {name}"
                raise BudgetSpent(
                    f"the budget is spent: {spent} used, and the next call asks for {amount:g}",
                    self,
                )
            waits = (
                waits or self.spent[name] + self.reserved[name] + amount > cap + _ROUNDING_TOLERANCE
            )
        return WHENEVER if waits else None

    def take(self, need: Need, now: float) -> object:
        """Reserve the need."""
        self.begin(now)
        for name in DIMENSIONS:
            self.reserved[name] += getattr(need, name)
        return None

    def change(self, old: Need, new: Need) -> None:
        """Change what is reserved for work that is under way, as it turns out to need more."""
        for name in DIMENSIONS:
            self.reserved[name] += getattr(new, name) - getattr(old, name)

    def give(self, need: Need, handed: object, used: Usage | None, now: float) -> None:  # noqa: ARG002 - the port's signature
        """Settle: what was really used is spent, and the rest is free again.

        If the price is unknown, the reserved amount is spent.
        """
        for name in DIMENSIONS:
            self.reserved[name] -= getattr(need, name)
        self.spent["requests"] += requests_used(used, need)
        self.spent["tokens"] += (
            need.tokens if used is None else used.input_tokens + used.output_tokens
        )
        self.spent["usd"] += need.usd if used is None or used.usd is None else used.usd


def _whole(name: str, amount: float | None) -> int | None:
    """The amount as an integer: in floats, 1.001 * 1000 is a little less than 1001."""
    if amount is None:
        return None
    if not math.isfinite(amount) or not math.isclose(amount, round(amount), rel_tol=1e-12):
        raise ValueError(f"a budget's {name} must be a whole number, not {amount:g}")
    return round(amount)
