"""The ledger of a shared lane: who holds which permits, what is spent; and messages about it.

Each driver that uses the lane is a *holder*: it sends a `Report` and gets a `Grant`.
`abreast.limits.shared.exchange` says what is granted.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Final, Literal, TypeAlias

from abreast.core.frozen import record
from abreast.limits.budget import Budget

Amounts: TypeAlias = dict[str, float]  # by dimension: requests, tokens, usd
Period: TypeAlias = Literal["hour", "day", "month"]
PERIODS: Final[Mapping[str, Period]] = {"hour": "hour", "day": "day", "month": "month"}


@record(frozen=True, slots=True)
class Terms:
    """The user's limits of a shared lane: at once, per minute, and in all or per period."""

    slots: int
    rates: Mapping[str, float] = field(default_factory=dict)  # per minute: requests, tokens
    caps: Mapping[str, float] = field(default_factory=dict)  # requests, tokens, usd
    period: Period | None = None  # of the caps; None for all time


def read_terms(slots: int, rates: Mapping[str, float], budget: str | None) -> Terms:
    """The terms with a budget such as `20usd` or `20usd/day`; ValueError if it is none."""
    if budget is None:
        return Terms(slots, rates)
    amounts, slash, period = budget.partition("/")
    parsed = Budget.parse(amounts)
    if parsed.seconds is not None:
        raise ValueError("the budget of a lane has no time; write 500req, 2Mtok or 20usd")
    if slash and period.strip() not in PERIODS:
        raise ValueError(f"there is no period {period.strip()!r}; use {', '.join(PERIODS)}")
    return Terms(slots, rates, parsed.caps, PERIODS.get(period.strip()))


@record(frozen=True, slots=True)
class Wish:
    """What waiting calls need: that of the first, and of all."""

    first: Amounts = field(default_factory=dict)
    total: Amounts = field(default_factory=dict)


@record(frozen=True, slots=True)
class Report:
    """What a holder tells: absolute numbers of slots, and changes since its last report."""

    holder: str
    number: int  # of this report; a repeated report has the same
    slots_taken: int = 0
    slots_wanted: int = 0  # those taken, and one for each waiting call
    rates: Wish = field(default_factory=Wish)
    unsent: Amounts = field(default_factory=dict)  # granted and not used; negative: used beyond
    budget: Wish = field(default_factory=Wish)
    freed: Amounts = field(default_factory=dict)  # reserved before, and settled or not needed
    spent: Amounts = field(default_factory=dict)
    hold: float = 0.0  # seconds that the provider asks to wait


@record(frozen=True, slots=True)
class Grant:
    """What a holder gets: all its slots, and further amounts to send and to spend.

    Slots may be fewer than it has taken: then it starts no call until enough have ended.
    """

    slots: int = 0
    rates: Amounts = field(default_factory=dict)
    budget: Amounts = field(default_factory=dict)
    left: Amounts = field(default_factory=dict)  # of the caps, if all reservations came back
    resets_in: float | None = None  # seconds until a new period of the caps
    hold: float = 0.0  # seconds that all calls of the lane have to wait
    is_new: bool = False  # the ledger did not know the holder: earlier grants are void


@record(frozen=True, slots=True)
class RateWait:
    """Since when a holder waits for a rate, and how much its first call needs."""

    since: float
    first: float


@record(frozen=True, slots=True)
class Holder:
    """A driver with a lease."""

    seen: float
    number: int
    slots: int  # leased, or still taken by calls in flight
    slots_wanted: int
    slots_at: float  # when it last got more slots
    waits: Mapping[str, RateWait]  # for more of a rate
    reserved: Amounts
    grant: Grant


@record(frozen=True, slots=True)
class Ledger:
    """The state of a shared lane."""

    holders: Mapping[str, Holder] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)  # of the buckets of the rates
    levels_at: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)
    period: str = ""
    hold_until: float = 0.0


def ledger_text(ledger: Ledger) -> str:
    """The ledger as the text that a store keeps."""
    return json.dumps(asdict(ledger), separators=(",", ":"), sort_keys=True)


def read_ledger(text: str | None) -> Ledger:
    """The ledger that a store keeps; an empty one if there is none."""
    if text is None:
        return Ledger()
    facts = json.loads(text)
    holders = {
        name: Holder(
            **{
                **each,
                "waits": {rate: RateWait(**wait) for rate, wait in each["waits"].items()},
                "grant": Grant(**each["grant"]),
            }
        )
        for name, each in facts.pop("holders").items()
    }
    return Ledger(holders=holders, **facts)
