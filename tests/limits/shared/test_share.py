"""A driver's share of a lane: what it starts with what the ledger grants, in virtual time."""

import threading
from contextlib import contextmanager

import pytest

from abreast.core.errors import LaneParked, StoreCorrupt, StoreError
from abreast.core.outcome import Usage
from abreast.limits.limit import Need
from abreast.limits.shared.exchange import LEASE
from abreast.limits.shared.exchanger import LaneExchanger
from abreast.limits.shared.ledger import Terms
from abreast.limits.shared.share import GRANT_LIFETIME, LaneShare
from tests.limits.desk import CountingClock, GateRecorder

CALL = Need(1, 1, 100, 0.25, 50)


class Ledgers:
    """Ledgers in memory, at the time of a clock."""

    def __init__(self, clock):
        self.texts = {}
        self.clock = clock
        self.fails = self.loses_answers = False

    def change_ledger(self, name, change):
        if self.fails:
            raise StoreError("the disk is full")
        self.texts[name] = change(self.texts.get(name), 1e9 + self.clock.now())
        if self.loses_answers:
            raise StoreError("the connection was lost")


class Drivers:
    """Several drivers, each with a gate and a share of one lane."""

    def __init__(self, terms, count=2):
        self.clock = CountingClock()
        self.ledgers = Ledgers(self.clock)
        self.desks = [GateRecorder(clock=self.clock) for _ in range(count)]
        self.shares = [LaneShare("lane", terms) for _ in range(count)]
        self.exchangers = []
        for share in self.shares:
            self.exchangers.append(LaneExchanger(share, self.ledgers, self.clock))
            share.wake = lambda: None  # the test exchanges by itself

    def ask(self, driver, name, need=CALL):
        share = self.shares[driver]
        budget = (share.budget,) if share.terms.caps else ()
        limits = [(limit, need) for limit in (*share.limits, *budget)]
        return self.desks[driver].ask(name, *limits)

    def turn(self, seconds=0.05):
        """Every driver exchanges once, and waiting calls are tried again."""
        for exchanger in self.exchangers:
            exchanger.exchange_once()
        self.clock.advance_nowait(seconds)

    def held(self):
        return [len(desk.holding) for desk in self.desks]


def test_calls_of_two_drivers_share_the_slots():
    drivers = Drivers(Terms(5))
    for number in range(10):
        assert not drivers.ask(0, number)
        assert not drivers.ask(1, number)
    drivers.turn()
    assert drivers.held() == [5, 0]  # the other one was not known yet
    drivers.desks[0].give(0)
    drivers.desks[0].give(1)
    peak = 0
    for _ in range(200):
        drivers.turn()
        for desk in drivers.desks:
            if desk.holding:
                desk.give(next(iter(desk.holding)))
        drivers.turn()
        peak = max(peak, sum(drivers.held()))
        assert sum(drivers.held()) <= 5
    assert peak == 5
    assert all(len(desk.granted) == 10 for desk in drivers.desks)


def test_a_free_slot_goes_to_the_driver_that_waits():
    drivers = Drivers(Terms(1))
    drivers.ask(0, "a")
    drivers.turn()
    drivers.ask(1, "b")
    drivers.turn()
    assert drivers.held() == [1, 0]
    drivers.desks[0].give("a")
    drivers.turn()
    assert drivers.held() == [0, 1]


def test_a_free_slot_is_not_used_while_the_ledger_may_give_it_to_others():
    drivers = Drivers(Terms(1))
    drivers.ask(0, "a")
    drivers.turn()
    drivers.ask(1, "b")
    drivers.turn()
    drivers.desks[0].give("a")
    change = drivers.ledgers.change_ledger

    def change_late(name, changed):
        change(name, changed)
        drivers.ask(0, "c")  # before the answer is here

    drivers.ledgers.change_ledger = change_late
    drivers.exchangers[0].exchange_once()
    drivers.ledgers.change_ledger = change
    drivers.exchangers[1].exchange_once()
    drivers.clock.advance_nowait(0.05)
    assert drivers.held() == [0, 1]


def test_no_call_starts_when_the_last_grant_is_old():
    drivers = Drivers(Terms(2))
    drivers.ask(0, "a")
    drivers.turn()
    drivers.ask(0, "b")
    drivers.turn()
    assert drivers.held() == [2, 0]
    drivers.desks[0].give("a")
    drivers.clock.advance_nowait(GRANT_LIFETIME)
    assert not drivers.ask(0, "c")
    drivers.clock.advance_nowait(LEASE)  # and now the other one may have the slot
    assert drivers.held() == [1, 0]
    drivers.turn()
    assert drivers.held() == [2, 0]


def test_requests_go_out_at_the_rate_of_all():
    drivers = Drivers(Terms(100, {"requests": 240}))  # four a second, and a burst of four
    for number in range(50):
        drivers.ask(0, number)
        drivers.ask(1, number)
    for _ in range(160):
        drivers.turn(1 / 16)
    times = sorted(time for desk in drivers.desks for time in desk.times.values())
    assert 40 <= len(times) <= 44 + 2
    for begin in times:
        assert sum(begin <= time < begin + 1 for time in times) <= 4 + 4 + 2
    assert all(len(desk.granted) > 10 for desk in drivers.desks)


def test_tokens_that_were_not_used_are_given_back():
    drivers = Drivers(Terms(100, {"tokens": 6000}))
    drivers.ask(0, "a")
    drivers.turn()
    assert drivers.held() == [1, 0]
    drivers.desks[0].give("a", Usage(1, 10, 10))
    drivers.turn()
    drivers.ask(1, "b", Need(1, 1, 80))
    drivers.turn()
    assert drivers.held() == [0, 1]


def test_tokens_used_beyond_the_need_are_paid_off_first():
    drivers = Drivers(Terms(100, {"tokens": 6000}))
    drivers.ask(0, "a")
    drivers.turn()
    drivers.desks[0].give("a", Usage(1, 200, 100))  # 200 more than it had
    drivers.turn()
    drivers.ask(1, "b", Need(1, 1, 10))
    for _ in range(20):
        drivers.turn()
    assert drivers.held() == [0, 0]
    for _ in range(25):
        drivers.turn()
    assert drivers.held() == [0, 1]


def test_one_budget_for_all_is_never_passed():
    drivers = Drivers(Terms(100, {}, {"usd": 1.0}))
    for number in range(8):
        drivers.ask(0, number)
        drivers.ask(1, number)
    spent = 0.0
    for _ in range(30):
        drivers.turn()
        for desk in drivers.desks:
            for name in list(desk.holding):
                desk.give(name, Usage(1, 50, 10, usd=0.2))
                spent += 0.2
            assert spent <= 1.0 + 1e-9
    assert spent == pytest.approx(0.8)  # 0.25 may be needed, and 0.2 is left
    failed = [error for desk in drivers.desks for error in desk.failed.values()]
    assert len(failed) == 16 - 4
    assert all(isinstance(error, LaneParked) for error in failed)
    assert "0.8 of 1 usd used" in str(failed[0])


def test_a_budget_per_day_says_when_it_begins_again():
    drivers = Drivers(Terms(100, {}, {"usd": 0.2}, "day"), 1)
    drivers.ask(0, "a")
    drivers.turn()
    assert "per day" in str(drivers.desks[0].failed["a"])
    assert "a new one begins in " in str(drivers.desks[0].failed["a"])


def test_a_call_that_used_all_it_reserved_when_the_price_is_unknown():
    drivers = Drivers(Terms(100, {}, {"usd": 0.3, "tokens": 1000, "requests": 5}), 1)
    drivers.ask(0, "a")
    drivers.turn()
    drivers.desks[0].give("a", None)
    drivers.turn()
    drivers.ask(0, "b", Need(1, 1, 10, 0.1))
    drivers.turn()
    assert "0.25 of 0.3 usd used" in str(drivers.desks[0].failed["b"])


def test_a_call_without_a_price_spends_what_it_reserved():
    drivers = Drivers(Terms(100, {}, {"usd": 0.3}), 1)
    drivers.ask(0, "a")
    drivers.turn()
    drivers.desks[0].give("a", Usage(1, 5, 5, usd=None))
    drivers.turn()
    drivers.ask(0, "b", Need(1, 1, 10, 0.1))
    drivers.turn()
    assert "b" in drivers.desks[0].failed


def test_a_hold_stops_every_driver():
    drivers = Drivers(Terms(10))
    drivers.shares[0].hold(5.0, drivers.clock.now())
    drivers.turn()
    drivers.ask(0, "a")
    drivers.ask(1, "b")
    for _ in range(90):
        drivers.turn()
    assert drivers.held() == [0, 0]
    for _ in range(20):
        drivers.turn()
    assert drivers.held() == [1, 1]


def test_a_weight_above_the_slots_takes_them_all():
    drivers = Drivers(Terms(3))
    drivers.ask(0, "all", Need("all"))
    drivers.turn()
    assert drivers.shares[0].slots.taken == 3
    drivers.desks[0].give("all")
    drivers.ask(0, "many", Need(50))
    drivers.turn()
    assert drivers.shares[0].slots.taken == 3


def test_an_exchange_whose_answer_was_lost_is_repeated_without_a_double_grant():
    drivers = Drivers(Terms(100, {"requests": 60}, {"usd": 1.0}), 1)
    drivers.ask(0, "a")
    drivers.ledgers.loses_answers = True
    with pytest.raises(StoreError):
        drivers.exchangers[0].exchange_once()
    drivers.ledgers.loses_answers = False
    drivers.ask(0, "b")
    drivers.turn()
    assert drivers.held() == [1]
    drivers.turn(1.0)
    drivers.turn(0.1)
    assert drivers.held() == [2]


def test_after_a_lapse_earlier_grants_are_void():
    drivers = Drivers(Terms(2, {"tokens": 6000}, {"usd": 0.6}))
    drivers.ask(0, "a")
    drivers.turn()
    drivers.clock.advance_nowait(LEASE + 1)
    drivers.ask(1, "b")
    drivers.exchangers[1].exchange_once()
    drivers.clock.advance_nowait(0.05)
    assert drivers.held() == [1, 1]
    drivers.desks[0].give("a", Usage(1, 10, 10, usd=0.01))
    drivers.turn()
    # Its reservation of 0.25 counts as spent already, whatever the call used.
    assert drivers.shares[0].budget.left["usd"] == pytest.approx(0.35)


def test_a_call_that_outlived_its_lease_settles_nothing():
    drivers = Drivers(Terms(2, {}, {"usd": 1.0}))
    drivers.ask(0, "a")
    drivers.turn()
    drivers.clock.advance_nowait(LEASE + 1)
    drivers.turn()
    drivers.turn()
    drivers.desks[0].give("a", Usage(1, 10, 10, usd=0.2))
    drivers.turn()
    drivers.turn()
    assert drivers.shares[1].budget.left["usd"] == pytest.approx(0.75)
    drivers.ask(1, "b", Need(1, 1, 10, 0.75))
    drivers.turn()
    assert drivers.held() == [0, 1]
    drivers.ask(0, "c", Need(1, 1, 10, 0.01))
    drivers.turn()
    assert drivers.held() == [0, 1]


def test_a_driver_keeps_in_stock_only_what_it_can_send():
    drivers = Drivers(Terms(1, {"requests": 6000}))
    for number in range(50):
        drivers.ask(0, number)
    for _ in range(20):
        drivers.turn()
    assert drivers.held() == [1, 0]
    assert drivers.shares[0].rates.stock["requests"] <= 1.0


def test_leaving_gives_back_what_no_call_uses():
    drivers = Drivers(Terms(1, {"requests": 60}, {"usd": 1.0}))
    drivers.ask(0, "a")
    drivers.exchangers[0].exchange_once()
    drivers.desks[0].withdraw("a")
    drivers.exchangers[0].leave()
    drivers.ask(1, "b")
    drivers.exchangers[1].exchange_once()
    drivers.clock.advance_nowait(0.05)
    assert drivers.held() == [0, 1]


def test_leaving_after_a_lost_answer_settles_once():
    drivers = Drivers(Terms(5, {}, {"usd": 1.0}))
    drivers.ask(0, "a")
    drivers.turn()
    drivers.desks[0].give("a", Usage(1, 5, 5, usd=0.2))
    drivers.ledgers.loses_answers = True
    with pytest.raises(StoreError):
        drivers.exchangers[0].exchange_once()
    drivers.ledgers.loses_answers = False
    drivers.exchangers[0].leave()
    drivers.exchangers[1].exchange_once()
    assert drivers.shares[1].budget.left["usd"] == pytest.approx(0.8)


# --- the thread


class WatchedLedgers(Ledgers):
    """Counts exchanges, and lets the test wait for them."""

    def __init__(self, clock):
        super().__init__(clock)
        self.exchanged = threading.Semaphore(0)

    def change_ledger(self, name, change):
        try:
            super().change_ledger(name, change)
        finally:
            self.exchanged.release()


@contextmanager
def running(terms):
    share = LaneShare("lane", terms)
    ledgers = WatchedLedgers(CountingClock())
    exchanger = LaneExchanger(share, ledgers)
    try:
        yield share, ledgers, exchanger
    finally:
        ledgers.fails = False
        exchanger.close()


def test_a_waking_share_is_exchanged_and_closing_leaves():
    with running(Terms(3)) as (share, ledgers, exchanger):
        share.wake()
        share.wake()
        assert ledgers.exchanged.acquire(timeout=60)
        assert exchanger.share is share
    assert '"holders":{}' in ledgers.texts["lane"]
    share.wake()  # nothing starts again
    assert threading.active_count() < 50


def test_a_store_that_fails_is_asked_again(caplog):
    with running(Terms(3)) as (share, ledgers, _):
        ledgers.fails = True
        share.wake()
        assert ledgers.exchanged.acquire(timeout=60)
        ledgers.fails = False
        share.wake()
        while "lane" not in ledgers.texts:
            assert ledgers.exchanged.acquire(timeout=60)
    assert "the disk is full" in caplog.text


def test_closing_without_a_store_ends_all_the_same(caplog):
    with running(Terms(3)) as (share, ledgers, exchanger):
        share.wake()
        assert ledgers.exchanged.acquire(timeout=60)
        ledgers.fails = True
        exchanger.close()
    assert "the disk is full" in caplog.text


def test_a_damaged_ledger_parks_the_lane():
    with running(Terms(3)) as (share, ledgers, _):

        def damaged(name, change):
            ledgers.exchanged.release()
            raise StoreCorrupt("it is damaged")

        ledgers.change_ledger = damaged
        share.wake()
        assert ledgers.exchanged.acquire(timeout=60)
        desk = GateRecorder()
        while not desk.failed:
            desk.ask("a", share.slots)
            desk.withdraw("a")
    assert str(desk.failed["a"]) == "it is damaged"


def test_closing_what_was_never_used_writes_nothing():
    with running(Terms(3)) as (_, ledgers, _):
        pass
    assert ledgers.texts == {}
