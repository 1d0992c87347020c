"""The exchange by which a driver leases permits from the ledger of a shared lane.

    ledger, grant = exchange(ledger, terms, report, now)

A holder reports what it holds, what its waiting calls need and what its ended calls have used. It
gets a lease of slots, an amount of requests and tokens to send, and a part of the budget. A holder
that does not report for `LEASE` seconds is taken for dead: its slots return, and what it had
reserved of the budget counts as spent, since its calls may have been paid for. An exchange whose
answer was lost can be repeated: it has a number.

All functions are pure; a store reads the ledger, calls `exchange` and writes the ledger in one
transaction.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from abreast.core.frozen import record
from abreast.limits.shared.ledger import (
    Amounts,
    Grant,
    Holder,
    Ledger,
    Period,
    RateWait,
    Report,
    Terms,
    Wish,
)

LEASE: Final = 6.0  # seconds without a report after which a holder counts as dead
# Seconds without a report after which a waiting holder is no longer waited for.
_PATIENCE: Final = 1.0
_ROUNDING_TOLERANCE: Final = 1e-9

_PERIOD_NAMES: Final[Mapping[Period, str]] = {
    "hour": "%Y-%m-%d %H:00",
    "day": "%Y-%m-%d",
    "month": "%Y-%m",
}


def exchange(ledger: Ledger, terms: Terms, report: Report, now: float) -> tuple[Ledger, Grant]:
    """Settle a report and grant what fits; `now` is the store's time in seconds since 1970."""
    ledger = _without_dead_holders(_in_period(ledger, terms, now), now)
    holder = ledger.holders.get(report.holder)
    if holder is not None and holder.number == report.number:
        return ledger, holder.grant
    levels = _settled_levels(ledger, terms, report, now)
    spent = dict(ledger.spent)
    reserved: Amounts = {}
    if holder is not None:
        # After a lapse the reservations count as spent already, so nothing is settled.
        reserved = _sum(holder.reserved, report.freed, -1)
        spent = _sum(spent, report.spent)
    others = {name: each for name, each in ledger.holders.items() if name != report.holder}
    slots = _slots(terms, report, holder, others)
    rates = {
        name: _rate_grant(
            levels[name], _burst(rate), _waits(name, holder, others, now), report.rates, name
        )
        for name, rate in terms.rates.items()
    }
    hold_until = max(ledger.hold_until, now + report.hold if report.hold > 0 else 0.0)
    grant = Grant(
        slots=slots,
        rates={name: amount for name, amount in rates.items() if amount},
        budget=_budget_grant(terms, report, spent, _all_reserved(others, reserved)),
        left={name: cap - spent.get(name, 0.0) for name, cap in terms.caps.items()},
        resets_in=_resets_in(terms, now),
        hold=max(0.0, hold_until - now),
        is_new=holder is None,
    )
    mine = _holder(report, grant, holder, _sum(reserved, grant.budget), now)
    changed = Ledger(
        holders={**others, report.holder: mine},
        levels=_sum(levels, rates, -1),
        levels_at=now,
        spent=spent,
        period=ledger.period,
        hold_until=hold_until,
    )
    return changed, grant


def leave(ledger: Ledger, report: Report, now: float) -> Ledger:
    """Settle the last report of a holder, and end its lease."""
    ledger = _without_dead_holders(ledger, now)
    holder = ledger.holders.get(report.holder)
    if holder is None:
        return ledger
    others = {name: each for name, each in ledger.holders.items() if name != report.holder}
    # What is still reserved belongs to calls that have no end yet.
    in_flight = _sum(holder.reserved, report.freed, -1)
    return Ledger(
        holders=others,
        levels=_sum(ledger.levels, report.unsent),
        levels_at=ledger.levels_at,
        spent=_sum(_sum(ledger.spent, report.spent), in_flight),
        period=ledger.period,
        hold_until=ledger.hold_until,
    )


def _in_period(ledger: Ledger, terms: Terms, now: float) -> Ledger:
    """The ledger in the present period: nothing is spent at its beginning."""
    period = "" if terms.period is None else _period(terms.period, now)
    if period == ledger.period:
        return ledger
    spent = {} if ledger.period and period else ledger.spent
    return replace(ledger, spent=spent, period=period)


def _period(period: Period, now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime(_PERIOD_NAMES[period])


def _resets_in(terms: Terms, now: float) -> float | None:
    """Seconds until the next period of the caps."""
    if terms.period is None:
        return None
    at = datetime.fromtimestamp(now, UTC)
    begins = at.replace(minute=0, second=0, microsecond=0)
    if terms.period == "hour":
        ends = begins + timedelta(hours=1)
    elif terms.period == "day":
        ends = begins.replace(hour=0) + timedelta(days=1)
    else:
        ends = (begins.replace(hour=0, day=1) + timedelta(days=32)).replace(day=1)
    return ends.timestamp() - now


def _without_dead_holders(ledger: Ledger, now: float) -> Ledger:
    """The ledger without holders whose lease has ended.

    A time far in the future is no lease either: the clock was set back.
    """
    alive = {name: each for name, each in ledger.holders.items() if abs(now - each.seen) <= LEASE}
    if len(alive) == len(ledger.holders):
        return ledger
    spent = dict(ledger.spent)
    for name, each in ledger.holders.items():
        if name not in alive:
            spent = _sum(spent, each.reserved)
    return replace(ledger, holders=alive, spent=spent)


def _settled_levels(ledger: Ledger, terms: Terms, report: Report, now: float) -> Amounts:
    """How much of each rate may be sent now, before this grant."""
    passed = max(0.0, now - ledger.levels_at)
    levels: Amounts = {}
    for name, rate in terms.rates.items():
        burst = _burst(rate)
        level = ledger.levels.get(name, burst) + passed * rate / 60
        levels[name] = min(burst, level + report.unsent.get(name, 0.0))
    return levels


def _burst(rate: float) -> float:
    """How much may be sent at once: what fills in a second, and at least one."""
    return max(1.0, rate / 60)


def _slots(
    terms: Terms, report: Report, holder: Holder | None, others: Mapping[str, Holder]
) -> int:
    """How many slots the holder has from now on: a fair share of them, as far as they are free."""
    wishes = {name: each.slots_wanted for name, each in others.items()}
    got_at = {name: each.slots_at for name, each in others.items()}
    wishes[report.holder] = report.slots_wanted
    got_at[report.holder] = 0.0 if holder is None else holder.slots_at
    free = terms.slots - sum(each.slots for each in others.values())
    return max(0, min(_fair_shares(terms.slots, wishes, got_at)[report.holder], free))


def _fair_shares(
    total: int, wishes: Mapping[str, int], got_at: Mapping[str, float]
) -> dict[str, int]:
    """Divide slots so that none has fewer than another unless it wants fewer.

    What remains goes to those who got none for the longest time.
    """
    shares = dict.fromkeys(wishes, 0)
    left, unmet = total, [name for name, wish in wishes.items() if wish > 0]
    while unmet and left >= len(unmet):
        part = left // len(unmet)
        for name in unmet:
            more = min(part, wishes[name] - shares[name])
            shares[name] += more
            left -= more
        unmet = [name for name in unmet if shares[name] < wishes[name]]
    for name in sorted(unmet, key=lambda name: (got_at[name], name))[:left]:
        shares[name] += 1
    return shares


@record(frozen=True, slots=True)
class _Waits:
    """The needs of holders that have waited longer for a rate, and the number of all others."""

    before: tuple[float, ...]
    others: int


def _waits(name: str, holder: Holder | None, others: Mapping[str, Holder], now: float) -> _Waits:
    since = holder.waits[name].since if holder is not None and name in holder.waits else now
    waiting = [
        each.waits[name]
        for each in others.values()
        if name in each.waits and now - each.seen <= _PATIENCE
    ]
    before = tuple(wait.first for wait in waiting if wait.since < since)
    return _Waits(before, len(waiting))


def _rate_grant(level: float, burst: float, waits: _Waits, wish: Wish, name: str) -> float:
    """How much may be sent: at least what the first call needs, and a fair part of the level.

    What holders need that have waited longer is left to them. A call bigger than the bucket goes
    when the bucket is full, and leaves a debt.
    """
    first, total = wish.first.get(name, 0.0), wish.total.get(name, 0.0)
    level -= sum(min(each, burst) for each in waits.before)
    if total <= 0 or level + _ROUNDING_TOLERANCE < min(first, burst):
        return 0.0
    return max(first, min(total, level / (1 + waits.others)))


def _holder(
    report: Report, grant: Grant, before: Holder | None, reserved: Amounts, now: float
) -> Holder:
    """The holder after an exchange."""
    waits: dict[str, RateWait] = {}
    for name, total in report.rates.total.items():
        if total > grant.rates.get(name, 0.0):
            is_same = before is not None and name in before.waits and name not in grant.rates
            since = before.waits[name].since if is_same and before is not None else now
            waits[name] = RateWait(since, report.rates.first.get(name, 0.0))
    slots = max(report.slots_taken, grant.slots)
    got_more = before is None or slots > before.slots
    return Holder(
        seen=now,
        number=report.number,
        slots=slots,
        slots_wanted=report.slots_wanted,
        slots_at=now if slots and got_more else (0.0 if before is None else before.slots_at),
        waits=waits,
        reserved=reserved,
        grant=grant,
    )


def _budget_grant(terms: Terms, report: Report, spent: Amounts, reserved: Amounts) -> Amounts:
    """What fits beneath the caps: all that the waiting calls need, or that of the first."""
    for wanted in (report.budget.total, report.budget.first):
        if any(wanted.values()) and all(
            spent.get(name, 0) + reserved.get(name, 0) + wanted.get(name, 0)
            <= cap + _ROUNDING_TOLERANCE
            for name, cap in terms.caps.items()
        ):
            return {name: amount for name, amount in wanted.items() if amount}
    return {}


def _sum(one: Mapping[str, float], other: Mapping[str, float], factor: float = 1) -> Amounts:
    names = dict.fromkeys((*one, *other))
    return {name: one.get(name, 0.0) + factor * other.get(name, 0.0) for name in names}


def _all_reserved(holders: Mapping[str, Holder], own: Amounts) -> Amounts:
    for each in holders.values():
        own = _sum(own, each.reserved)
    return own
