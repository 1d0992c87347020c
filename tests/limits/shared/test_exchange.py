"""The exchange of a shared lane: what it grants, whoever asks, and whatever goes wrong."""

import json

from hypothesis import given
from hypothesis import strategies as st

from abreast.limits.shared.exchange import LEASE, exchange, leave
from abreast.limits.shared.ledger import (
    Ledger,
    Report,
    Terms,
    Wish,
    ledger_text,
    read_ledger,
    read_terms,
)

TERMS = Terms(12)
NOON = 1_800_014_400.0


def ask(ledger, holder, number, terms=TERMS, now=NOON, **report):
    return exchange(ledger, terms, Report(holder, number, **report), now)


def wish(**amounts):
    return Wish(dict(amounts), dict(amounts))


def test_a_lone_holder_gets_all_the_slots_that_it_wants():
    _, grant = ask(Ledger(), "a", 1, slots_wanted=5)
    assert grant.slots == 5
    _, grant = ask(Ledger(), "a", 1, slots_wanted=50)
    assert grant.slots == 12


def test_slots_in_use_elsewhere_are_not_granted():
    ledger, _ = ask(Ledger(), "a", 1, slots_wanted=12)
    ledger, grant = ask(ledger, "b", 1, slots_wanted=12)
    assert grant.slots == 0
    # The first one is told to keep half, and does so as its calls end.
    ledger, grant = ask(ledger, "a", 2, slots_taken=12, slots_wanted=30)
    assert grant.slots == 6
    ledger, grant = ask(ledger, "b", 2, slots_wanted=12)
    assert grant.slots == 0
    ledger, grant = ask(ledger, "a", 3, slots_taken=7, slots_wanted=30)
    ledger, grant = ask(ledger, "b", 3, slots_wanted=12)
    assert grant.slots == 5


def test_what_one_does_not_want_goes_to_the_others():
    ledger, _ = ask(Ledger(), "a", 1, slots_wanted=2)
    ledger, grant = ask(ledger, "b", 1, slots_wanted=30)
    assert grant.slots == 10


def test_holders_take_turns_at_a_single_slot():
    terms, ledger, turns = Terms(1), Ledger(), []
    busy = None
    for step in range(40):
        now = NOON + step
        holder = "abc"[step % 3]
        taken = int(busy == holder)
        if taken:  # its call ends, and another one waits
            ledger, grant = ask(ledger, holder, step, terms, now, slots_taken=1, slots_wanted=9)
            busy, taken = None, 0
        ledger, grant = ask(ledger, holder, step + 1000, terms, now, slots_wanted=9)
        if grant.slots:
            turns.append(holder)
            busy = holder
            ledger, _ = ask(ledger, holder, step + 2000, terms, now, slots_taken=1, slots_wanted=9)
    assert {turns.count(holder) for holder in "abc"} <= {len(turns) // 3, len(turns) // 3 + 1}
    assert len(turns) >= 9


def test_a_holder_that_does_not_report_loses_its_slots_and_not_before():
    ledger, _ = ask(Ledger(), "a", 1, slots_wanted=12)
    ledger, grant = ask(ledger, "b", 1, now=NOON + LEASE, slots_wanted=12)
    assert grant.slots == 0
    ledger, grant = ask(ledger, "b", 2, now=NOON + LEASE + 0.01, slots_wanted=12)
    assert grant.slots == 12
    # The first one comes back: it is told that what it had is void.
    ledger, grant = ask(ledger, "a", 2, now=NOON + LEASE + 1, slots_taken=3, slots_wanted=3)
    assert grant.is_new
    assert grant.slots == 0


def test_a_clock_that_was_set_back_ends_leases():
    ledger, _ = ask(Ledger(), "a", 1, slots_wanted=12)
    _, grant = ask(ledger, "b", 1, now=NOON - 3600, slots_wanted=12)
    assert grant.slots == 12


def test_a_repeated_report_changes_nothing_and_gets_the_same_grant():
    terms = Terms(3, {"requests": 60}, {"usd": 1.0})
    one = {"slots_wanted": 3, "rates": wish(requests=1), "budget": wish(usd=0.4)}
    ledger, grant = ask(Ledger(), "a", 7, terms, **one)
    again, same = ask(ledger, "a", 7, terms, now=NOON + 0.5, **one)
    assert same == grant
    assert again == ledger
    assert grant.rates == {"requests": 1.0}
    assert grant.budget == {"usd": 0.4}


def test_a_rate_is_shared_and_even():
    terms, ledger, sent = Terms(100, {"requests": 480}), Ledger(), []
    for step in range(480):  # a minute, in which two want as much as they can get
        now = NOON + step / 8
        for holder in "ab":
            ledger, grant = ask(
                ledger, holder, step, terms, now, rates=Wish({"requests": 1.0}, {"requests": 50.0})
            )
            sent.append((holder, grant.rates.get("requests", 0.0)))
    total = sum(amount for _, amount in sent)
    assert 480 <= total <= 488
    ours = sum(amount for holder, amount in sent if holder == "a")
    assert 0.4 <= ours / total <= 0.6


def test_a_large_prompt_is_not_overtaken_for_ever_by_small_ones():
    terms, ledger = Terms(100, {"tokens": 6000}), Ledger()  # 100 a second, and so a burst of 100
    got = 0.0
    for step in range(200):
        now = NOON + step / 100
        ledger, grant = ask(ledger, "small", step, terms, now, rates=wish(tokens=5.0))
        if not got:
            ledger, grant = ask(ledger, "large", step, terms, now, rates=wish(tokens=100.0))
            got = grant.rates.get("tokens", 0.0)
    assert got == 100.0


def test_a_call_bigger_than_the_bucket_goes_when_it_is_full_and_leaves_a_debt():
    terms = Terms(10, {"tokens": 6000})
    ledger, grant = ask(Ledger(), "a", 1, terms, rates=wish(tokens=1000.0))
    assert grant.rates == {"tokens": 1000.0}
    ledger, grant = ask(ledger, "a", 2, terms, NOON + 8.9, rates=wish(tokens=1.0))
    assert grant.rates == {}
    ledger, grant = ask(ledger, "a", 3, terms, NOON + 9.2, rates=wish(tokens=1.0))
    assert grant.rates == {"tokens": 1.0}


def test_what_was_not_sent_may_be_sent_by_others():
    terms = Terms(10, {"requests": 60})
    ledger, _ = ask(Ledger(), "a", 1, terms, rates=wish(requests=1.0))
    ledger, _ = ask(ledger, "a", 2, terms, unsent={"requests": 1.0})
    ledger, grant = ask(ledger, "b", 1, terms, rates=wish(requests=1.0))
    assert grant.rates == {"requests": 1.0}


def test_a_hold_is_for_all():
    ledger, _ = ask(Ledger(), "a", 1, hold=30.0)
    _, grant = ask(ledger, "b", 1, now=NOON + 10)
    assert grant.hold == 20.0


BUDGET = Terms(100, {}, {"usd": 1.0})


def test_reservations_of_all_count_against_one_budget():
    ledger, grant = ask(Ledger(), "a", 1, BUDGET, budget=wish(usd=0.6))
    assert grant.budget == {"usd": 0.6}
    ledger, grant = ask(ledger, "b", 1, BUDGET, budget=wish(usd=0.6))
    assert grant.budget == {}
    assert grant.left == {"usd": 1.0}  # it may still fit
    ledger, _ = ask(ledger, "a", 2, BUDGET, freed={"usd": 0.6}, spent={"usd": 0.3})
    ledger, grant = ask(ledger, "b", 2, BUDGET, budget=wish(usd=0.6))
    assert grant.budget == {"usd": 0.6}
    assert grant.left == {"usd": 0.7}


def test_if_not_all_fits_the_first_call_gets_its_part():
    want = Wish({"usd": 0.5}, {"usd": 5.0})
    _, grant = ask(Ledger(), "a", 1, BUDGET, budget=want)
    assert grant.budget == {"usd": 0.5}


def test_what_a_dead_holder_had_reserved_counts_as_spent():
    ledger, _ = ask(Ledger(), "a", 1, BUDGET, budget=wish(usd=0.6))
    later = NOON + LEASE + 1
    ledger, grant = ask(ledger, "b", 1, BUDGET, later, budget=wish(usd=0.5))
    assert grant.budget == {}
    assert grant.left == {"usd": 0.4}
    # It was only asleep: its settlement is not counted a second time.
    ledger, grant = ask(ledger, "a", 2, BUDGET, later, freed={"usd": 0.6}, spent={"usd": 0.6})
    assert grant.left == {"usd": 0.4}


def test_leaving_gives_everything_back_but_what_is_in_flight():
    terms = Terms(2, {"requests": 60}, {"usd": 1.0})
    ledger, _ = ask(
        Ledger(), "a", 1, terms, slots_wanted=2, rates=wish(requests=1.0), budget=wish(usd=0.8)
    )
    last = Report("a", 2, unsent={"requests": 1.0}, freed={"usd": 0.5}, spent={"usd": 0.1})
    ledger = leave(ledger, last, NOON)
    assert ledger.holders == {}
    _, grant = ask(ledger, "b", 1, terms, slots_wanted=2, rates=wish(requests=1.0))
    assert grant.slots == 2
    assert grant.rates == {"requests": 1.0}
    assert abs(grant.left["usd"] - 0.6) < 1e-9
    assert leave(ledger, last, NOON) == ledger  # a second time


def test_a_new_period_begins_with_the_whole_budget():
    terms = Terms(1, {}, {"usd": 1.0}, "day")
    ledger, grant = ask(Ledger(), "a", 1, terms, budget=wish(usd=1.0))
    assert grant.resets_in is not None
    ledger, _ = ask(ledger, "a", 2, terms, freed={"usd": 1.0}, spent={"usd": 1.0})
    midnight = NOON + grant.resets_in
    ledger, grant = ask(ledger, "a", 3, terms, midnight - 1)
    assert grant.left == {"usd": 0.0}
    ledger, grant = ask(ledger, "a", 4, terms, midnight + 1)
    assert grant.left == {"usd": 1.0}


def test_periods_end_with_the_hour_the_day_and_the_month():
    for period, seconds in (("hour", 3600.0), ("day", 12 * 3600.0)):
        _, grant = ask(Ledger(), "a", 1, Terms(1, {}, {"usd": 1.0}, period), NOON)
        assert grant.resets_in == seconds
    _, grant = ask(Ledger(), "a", 1, Terms(1, {}, {"usd": 1.0}, "month"), NOON)
    assert grant.resets_in == 17 * 86400 - 12 * 3600  # from the 15th of January, noon


def test_terms_are_read_with_their_budget():
    assert read_terms(4, {}, None) == Terms(4)
    assert read_terms(4, {}, "20usd,2Mtok") == Terms(4, {}, {"usd": 20, "tokens": 2_000_000})
    assert read_terms(4, {}, "20usd / day").period == "day"
    for wrong in ("20usd/year", "10min", "much", "20usd/"):
        try:
            read_terms(4, {}, wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)


# --- whatever happens


@st.composite
def steps(draw):
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from("abcd"),
                st.floats(0.0, LEASE * 0.9),  # seconds since the last step
                st.integers(0, 20),  # calls that begin to wait
                st.integers(0, 20),  # calls that end
                st.floats(0.0, 1.0),  # how much of a reservation is used
                st.sampled_from(["answer", "answer", "answer", "answer lost", "dies"]),
            ),
            min_size=1,
            max_size=40,
        )
    )


COST = 0.07
LIMITED = Terms(5, {"requests": 30}, {"usd": 2.0})


class Driver:
    """A driver as it should be: it starts calls only with what it was granted."""

    def __init__(self):
        self.number = self.running = self.waiting = self.slots = 0
        self.requests = self.usd = self.freed = self.spent = 0.0
        self.pending = None

    def report(self, name):
        if self.pending is None:
            self.number += 1
            soon = min(self.waiting, max(1, self.slots - self.running))
            first, total = min(soon, 1) - self.requests, soon - self.requests
            less, more = min(soon, 1) * COST - self.usd, soon * COST - self.usd
            self.pending = Report(
                name,
                self.number,
                slots_taken=self.running,
                slots_wanted=self.running + self.waiting,
                rates=Wish({"requests": max(0.0, first)}, {"requests": max(0.0, total)}),
                budget=Wish({"usd": max(0.0, less)}, {"usd": max(0.0, more)}),
                freed={"usd": self.freed},
                spent={"usd": self.spent},
            )
            self.freed = self.spent = 0.0
        return self.pending

    def accept(self, grant):
        self.pending = None
        if grant.is_new:
            self.requests = self.usd = 0.0
        self.slots = grant.slots
        self.requests += grant.rates.get("requests", 0.0)
        self.usd += grant.budget.get("usd", 0.0)
        started = 0
        while (
            self.waiting
            and self.running < self.slots
            and self.requests >= 1 - 1e-9
            and self.usd >= COST - 1e-9
        ):
            self.waiting -= 1
            self.running += 1
            self.requests -= 1
            self.usd -= COST
            started += 1
        return started


@given(steps())
def test_no_limit_is_ever_passed(taken):
    ledger, now = Ledger(), NOON
    drivers = {name: Driver() for name in "abcd"}
    dead_until = dict.fromkeys("abcd", 0.0)
    seen = dict.fromkeys("abcd", NOON)
    paid = 0.0
    starts = []
    for name, seconds, waits, ends, part, what in taken:
        now += seconds
        for each, asleep in list(drivers.items()):
            if now - seen[each] > LEASE:  # it starts no calls, and those that it had end
                paid += asleep.running * COST
                drivers[each] = Driver()
        if now < dead_until[name]:
            continue
        driver = drivers[name]
        driver.waiting += waits
        ending = min(ends, driver.running)
        driver.running -= ending
        driver.freed += ending * COST
        driver.spent += ending * COST * part
        paid += ending * COST * part
        report = driver.report(name)
        ledger, grant = exchange(ledger, LIMITED, report, now)
        assert read_ledger(ledger_text(ledger)) == ledger
        seen[name] = now
        if what == "answer":
            starts += [now] * driver.accept(grant)
        elif what == "dies":
            paid += driver.running * COST
            drivers[name] = Driver()
            dead_until[name] = now + LEASE + 0.01
        assert sum(each.slots for each in ledger.holders.values()) <= LIMITED.slots
        reserved = sum(each.reserved.get("usd", 0.0) for each in ledger.holders.values())
        assert ledger.spent.get("usd", 0.0) + reserved <= 2.0 + 1e-6
        in_flight = sum(each.running for each in drivers.values()) * COST
        assert paid + in_flight <= 2.0 + 1e-6
        json.loads(ledger_text(ledger))
    for at in starts:
        within = sum(at <= other < at + 60 for other in starts)
        assert within <= 30 + 4 + 1  # those of a minute, the first burst, one in stock of each
