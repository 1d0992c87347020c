"""The gate: first come first served at every limit, all or nothing, and nobody waits for what they don't need."""

from __future__ import annotations

import threading
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from abreast.core.outcome import Usage
from abreast.limits.budget import Budget
from abreast.limits.gate import LimitGate
from abreast.limits.limit import ONE, Limit, Need
from abreast.limits.pool import Pool
from abreast.limits.queue import MAX_MOVES, Ticket
from abreast.limits.rate import Rate
from abreast.limits.slots import Slots
from tests.limits.desk import CountingClock, Desk

# --- order


def test_at_each_limit_whoever_came_first_goes_first():
    desk, slots = Desk(), Slots(1)
    for name in range(5):
        desk.ask(name, slots)
    for name in range(4):
        desk.give(name)
    assert desk.granted == [0, 1, 2, 3, 4]


def test_a_retry_asks_with_its_old_place_and_goes_before_those_who_came_after_it():
    desk, slots = Desk(), Slots(1)
    for name in ("first", "second", "third"):
        desk.ask(name, slots)
    desk.give("first")  # it failed, and waits for its backoff
    assert not desk.ask_again("first")
    desk.give("second")
    assert desk.granted == ["first", "second", "first"]
    desk.give("first")
    assert desk.granted[-1] == "third"


def test_a_retry_may_pass_those_who_wait_for_more_than_there_is():
    desk, slots = Desk(), Slots(2)
    desk.ask("retried", slots)
    desk.ask("other", slots)
    desk.ask("all", (slots, Need(weight="all")))
    desk.give("retried")
    assert desk.ask_again("retried")
    desk.give("other")
    desk.give("retried")
    assert desk.granted[-1] == "all"


def test_two_tickets_with_one_place_are_served_as_they_came():
    desk, slots = Desk(), Slots(1)
    for name in ("holder", "a", "b", "later"):
        desk.ask(name, slots)
        if name == "b":
            desk.withdraw("b")
            desk.tickets["b"].order = desk.tickets["a"].order
            desk.ask_again("b")
    for name in ("holder", "a", "b"):
        desk.give(name)
    assert desk.granted == ["holder", "a", "b", "later"]


# --- independence, all or nothing


def test_a_full_limit_never_delays_those_who_do_not_need_it():
    desk, full, free = Desk(), Slots(1), Slots(3)
    desk.ask("holder", full)
    for name in range(20):
        assert not desk.ask(("stuck", name), full, free)
    for name in range(3):
        assert desk.ask(name, free)
    assert free.taken == 3


@pytest.mark.parametrize("full_first", [True, False])
def test_who_waits_holds_nothing(full_first):
    desk, full, free = Desk(), Slots(1), Slots(1)
    desk.ask("holder", full)
    assert not desk.ask("both", *((full, free) if full_first else (free, full)))
    assert free.taken == 0
    assert desk.tickets["both"].holds == ()
    desk.give("holder")
    assert desk.granted == ["holder", "both"]
    assert (free.taken, full.taken) == (1, 1)


def test_no_two_tickets_can_wait_for_each_other():
    desk, left, right = Desk(), Slots(1), Slots(1)
    for name in range(10):
        desk.ask(name, *((left, right) if name % 2 else (right, left)))
    for name in range(10):
        assert desk.granted[-1] == name
        desk.give(name)


def test_a_ticket_that_needs_nothing_is_let_through():
    desk = Desk()
    assert desk.ask("free")
    desk.give("free")


# --- overtaking


@given(schedule=st.randoms(use_true_random=False), wanted=st.integers(2, 3))
@settings(max_examples=30)
def test_a_ticket_for_several_busy_limits_is_overtaken_a_bounded_number_of_times(schedule, wanted):
    """Each limit is taken again the moment it is given back: they are not free together unless the gate sees to it."""
    desk, limits = Desk(), [Slots(1) for _ in range(wanted)]
    for number, limit in enumerate(limits):
        desk.ask(("single", number, 0), limit)
    desk.ask("several", *limits)
    for turn in range(1, 10 * MAX_MOVES):
        for number in schedule.sample(range(wanted), wanted):
            desk.ask(("single", number, turn), limits[number])
            for name in [name for name in desk.holding if name[1] == number]:
                desk.give(name)
        if "several" in desk.granted:
            break
    overtaken_by = desk.granted.index("several") - wanted
    assert overtaken_by <= (MAX_MOVES + 1) * wanted
    assert overtaken_by >= MAX_MOVES / 2, "the schedule did try to keep it out"


def test_a_ticket_that_was_sent_on_too_often_stands_in_all_its_lines_and_lets_them_go_when_it_goes():
    desk, left, right = Desk(), Slots(1), Slots(1)
    with mock.patch("abreast.limits.queue.MAX_MOVES", 1):
        desk.ask("l", left)
        desk.ask("r", right)
        desk.ask("both", left, right)
        desk.give("l")  # sent on to the right, where it is to stand firm
        assert desk.tickets["both"].in_all_lines
        assert not desk.ask("after, left", left)
        assert not desk.ask("after, right", right)
        desk.give("r")
        assert desk.granted == ["l", "r", "both"]
        desk.give("both")
        assert desk.granted[3:] == ["after, left", "after, right"]
        desk.check(left, right)


def test_those_behind_a_firm_ticket_go_on_when_it_fails():
    desk, slots, budget = Desk(), Slots(1), Budget(requests=10, tokens=10)
    with mock.patch("abreast.limits.queue.MAX_MOVES", 0):
        desk.ask("spender", (budget, Need(tokens=6)))
        desk.ask("firm", (budget, Need(tokens=9)), slots)
        assert not desk.ask("behind", slots)
        desk.give("spender", Usage(1, 6))
        assert "firm" in desk.failed
        assert "behind" in desk.holding
    desk.check(slots, budget)


def test_those_behind_a_firm_ticket_go_on_when_it_fails_at_another_limit():
    desk, slots, budget = Desk(), Slots(1), Budget(requests=10, tokens=10)
    with mock.patch("abreast.limits.queue.MAX_MOVES", 0):
        desk.ask("holder", slots)
        desk.ask("firm", slots, (budget, Need(tokens=9)))
        assert not desk.ask("behind", (budget, Need(tokens=1)))
        budget.restore({"tokens": 5})
        desk.give("holder")
        assert "firm" in desk.failed
        assert "behind" in desk.holding
    desk.check(slots, budget)


def test_a_firm_ticket_does_not_put_off_the_timer_of_an_older_one():
    desk, slots, rate = Desk(), Slots(1), Rate(1, per=1, burst=1)
    with mock.patch("abreast.limits.queue.MAX_MOVES", 0):
        desk.ask("holder", slots)
        desk.ask("taker", rate)
        desk.ask("older", rate)
        desk.ask("firm", slots, rate)
        desk.give("holder")  # the firm one is tried, and refused because the older one is before it
        desk.clock.advance_nowait(1.0)
        assert "older" in desk.holding
        desk.clock.advance_nowait(1.0)
        assert "firm" in desk.holding
    desk.check(slots, rate)


# --- leaving


def test_who_leaves_the_line_leaves_nothing_behind():
    desk, slots, rate, pool = Desk(), Slots(1), Rate(1, per=1, burst=1), Pool("a")
    limits = (slots, rate, pool)
    desk.ask("never asked at once", *limits)
    desk.give("never asked at once")
    desk.withdraw("never asked at once")  # neither waiting nor holding: harmless
    desk.ask("waits for time", *limits)
    assert desk.clock.next_due is not None
    desk.withdraw("waits for time")
    desk.withdraw("waits for time")
    assert desk.clock.next_due is None, "no timer for an empty line"
    desk.check(*limits)
    desk.clock.advance_nowait(10)
    assert desk.granted == ["never asked at once"]


def test_who_holds_does_not_lose_it_by_withdrawing():
    desk, slots = Desk(), Slots(1)
    desk.ask("holder", slots)
    desk.gate.withdraw(desk.tickets["holder"])
    assert slots.taken == 1
    desk.check(slots)


def test_those_behind_one_who_leaves_go_on():
    desk, slots = Desk(), Slots(2)
    desk.ask("holder", slots)
    desk.ask("all", (slots, Need(weight="all")))
    desk.ask("behind", slots)
    desk.withdraw("all")
    assert desk.granted == ["holder", "behind"]


def test_one_who_left_and_comes_back_has_its_old_place():
    desk, slots = Desk(), Slots(1)
    for name in ("holder", "a", "b"):
        desk.ask(name, slots)
    desk.withdraw("a")
    desk.ask_again("a")
    desk.give("holder")
    assert desk.granted == ["holder", "a"]
    desk.give("a")
    assert desk.granted == ["holder", "a", "b"]


def test_a_retry_that_did_not_wait_this_time_does_not_say_it_did():
    desk, slots = Desk(), Slots(1)
    desk.ask("holder", slots)
    desk.ask("waits", slots)
    assert desk.tickets["waits"].parked is slots
    desk.give("holder")
    desk.give("waits")
    assert desk.ask_again("waits")
    assert desk.tickets["waits"].parked is None


# --- failing


def test_a_ticket_that_can_not_be_served_any_more_is_told_and_those_behind_it_go_on():
    desk, budget = Desk(), Budget(tokens=10)
    desk.ask("one", (budget, Need(tokens=6)))
    desk.ask("too big", (budget, Need(tokens=5)))
    desk.ask("small", (budget, Need(tokens=2)))
    assert not desk.failed
    desk.give("one", Usage(1, 6))
    assert list(desk.failed) == ["too big"]
    assert desk.granted == ["one", "small"]
    desk.check(budget)


def test_a_ticket_that_shows_at_once_to_be_too_big_leaves_nothing_behind():
    desk, slots, budget = Desk(), Slots(1), Budget(tokens=10)
    desk.ask("too big", slots, (budget, Need(tokens=11)))
    assert list(desk.failed) == ["too big"]
    assert slots.taken == 0
    desk.check(slots, budget)


# --- from within


def test_a_ticket_may_ask_and_give_in_the_moment_it_is_granted():
    desk, slots, other = Desk(), Slots(1), Slots(1)

    def ask_more() -> None:
        desk.ask("within", other)
        desk.ask("waits", slots)
        desk.give("granted")

    desk.ask("holder", slots)
    desk.ask("granted", slots, then=ask_more)
    desk.ask("behind", slots)
    desk.give("holder")
    assert desk.granted == ["holder", "granted", "within", "behind"]
    desk.give("behind")
    assert desk.granted[-1] == "waits"
    desk.check(slots, other)


def test_any_number_of_tickets_may_give_back_in_the_moment_they_are_granted():
    desk, slots = Desk(), Slots(1)
    desk.ask("holder", slots)
    for name in range(3000):
        desk.ask(name, slots, then=lambda name=name: desk.give(name))
    desk.give("holder")
    assert desk.granted == ["holder", *range(3000)]
    desk.check(slots)


def test_a_ticket_may_withdraw_another_in_the_moment_it_is_granted():
    desk, slots = Desk(), Slots(2)
    desk.ask("one", slots)
    desk.ask("two", slots)
    desk.ask("granted", slots, then=lambda: desk.withdraw("next"))
    desk.ask("next", slots)
    desk.ask("last", slots)
    desk.gate.give([*desk.holding.pop("one"), *desk.holding.pop("two")])
    assert desk.granted == ["one", "two", "granted", "last"]
    desk.check(slots)


def test_what_a_callback_raises_reaches_the_one_who_gave_and_the_gate_goes_on():
    desk, slots = Desk(), Slots(1)
    desk.ask("holder", slots)
    desk.ask("raises", slots, then=lambda: 1 / 0)
    desk.ask("behind", slots)
    with pytest.raises(ZeroDivisionError):
        desk.give("holder")
    desk.give("raises")
    assert desk.granted == ["holder", "raises", "behind"]


# --- shared


def test_two_gates_that_share_a_limit_share_its_line():
    clock, slots = CountingClock(), Slots(1)
    one, other = Desk(clock=clock), Desk(clock=clock)
    one.ask("a", slots)
    other.ask("b", slots)
    one.ask("c", slots)
    one.give("a")
    assert (one.granted, other.granted) == (["a"], ["b"])
    other.give("b")
    assert one.granted == ["a", "c"]


def test_a_gate_wakes_at_its_time_those_who_wait_at_another():
    clock, rate = CountingClock(), Rate(1, per=1, burst=1)
    one, other = Desk(clock=clock), Desk(clock=clock)
    one.ask("a", rate)
    one.ask("b", rate)
    other.ask("c", rate)
    one.withdraw("b")
    clock.advance_nowait(1.0)
    assert other.granted == ["c"]
    assert clock.next_due is None


def in_a_thread(work):
    """What `work` returns or raises in a thread of its own."""
    came: list[object] = []

    def run() -> None:
        try:
            came.append(work())
        except Exception as error:
            came.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return came[0]


@pytest.mark.parametrize("waiting", [True, False])
def test_a_limit_in_use_on_one_thread_is_refused_to_another(waiting):
    desk, slots = Desk(), Slots(1)
    desk.ask("holder", slots)
    if waiting:
        desk.ask("waits", slots)
    error = in_a_thread(
        lambda: LimitGate(CountingClock()).ask(Ticket([("lane", slots, ONE)], print, print))
    )
    assert isinstance(error, RuntimeError)
    assert "in use on another event loop's thread" in str(error)
    assert slots.taken == 1


def test_a_limit_that_nobody_uses_may_go_to_another_thread():
    desk, slots = Desk(), Slots(1)
    desk.ask("holder", slots)
    desk.ask("waits", slots)
    desk.withdraw("waits")
    desk.give("holder")
    assert in_a_thread(lambda: Desk().ask("elsewhere", slots)) is True
    with pytest.raises(RuntimeError, match="another event loop"):
        desk.ask("back", slots)


# --- every order of everything


class EverythingAtOnce(RuleBasedStateMachine):
    """Asks, gives, retries, leaves, lets time pass and changes sizes in any order, and holds the books to the laws."""

    @initialize(
        patience=st.sampled_from([0, 1, 2, 16]),
        sizes=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
        tokens=st.integers(10, 60),
    )
    def open(self, patience: int, sizes: tuple[int, int, int], tokens: int) -> None:
        self.patch = mock.patch("abreast.limits.queue.MAX_MOVES", patience)
        self.patch.start()
        self.desk = Desk()
        self.slots, self.more = Slots(sizes[0]), Slots(sizes[1])
        self.pool = Pool(range(sizes[2]))
        self.rate = Rate(2, per=1, burst=2)
        self.budget = Budget(requests=100, tokens=tokens)
        self.limits: list[Limit] = [self.slots, self.more, self.pool, self.rate, self.budget]
        self.names = 0

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        try:
            self.everyone_has_their_turn()
        finally:
            self.patch.stop()

    def everyone_has_their_turn(self) -> None:
        desk = self.desk
        for _ in range(200):
            for name in list(desk.holding):
                if name in desk.holding:
                    desk.give(name, Usage(1))
            desk.clock.advance_nowait(1.0)
            self.the_books_are_right()
            if not desk.waiting and not desk.holding:
                break
        assert not desk.waiting, "everyone has had their turn"
        assert not desk.holding
        assert [limit.line.users for limit in self.limits] == [0] * 5
        assert desk.clock.next_due is None, "no timer is left"

    @rule(
        which=st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True),
        weight=st.sampled_from([1, 1, 2, "all"]),
        tokens=st.integers(0, 12),
        then=st.sampled_from(["nothing", "nothing", "give", "ask", "leave"]),
    )
    def ask(self, which: list[int], weight, tokens: int, then: str) -> None:
        self.names += 1
        name = self.names
        need = Need(weight=weight, tokens=tokens)
        self.desk.ask(
            name, *((self.limits[one], need) for one in which), then=lambda: self.react(name, then)
        )

    def react(self, name: int, then: str) -> None:
        desk = self.desk
        if then == "give":
            desk.give(name, Usage(1))
        elif then == "ask":
            self.names += 1
            desk.ask(self.names, self.slots, self.pool)
        elif then == "leave" and desk.waiting:
            desk.withdraw(min(desk.waiting))

    @precondition(lambda self: self.desk.holding)
    @rule(which=st.integers(0, 20), share=st.sampled_from([0, 0.5, 1, None]))
    def give(self, which: int, share: float | None) -> None:
        name = sorted(self.desk.holding)[which % len(self.desk.holding)]
        asked = max((hold.need.tokens for hold in self.desk.holding[name]), default=0)
        self.desk.give(name, None if share is None else Usage(1, int(asked * share)))

    @precondition(lambda self: self.desk.holding)
    @rule(which=st.integers(0, 20))
    def give_and_ask_again(self, which: int) -> None:
        name = sorted(self.desk.holding)[which % len(self.desk.holding)]
        self.desk.give(name, Usage(1))
        self.desk.ask_again(name)

    @precondition(lambda self: self.desk.waiting)
    @rule(which=st.integers(0, 20))
    def leave(self, which: int) -> None:
        self.desk.withdraw(sorted(self.desk.waiting)[which % len(self.desk.waiting)])

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.desk.clock.advance_nowait(seconds)

    @rule(count=st.integers(1, 4))
    def resize(self, count: int) -> None:
        self.slots.resize(count)
        self.desk.gate.serve(self.slots)

    @invariant()
    def the_books_are_right(self) -> None:
        self.desk.check(*self.limits)
        assert (
            self.budget.spent["tokens"] + self.budget.reserved["tokens"]
            <= self.budget.caps["tokens"]
        )

    @invariant()
    def who_failed_could_not_have_been_served(self) -> None:
        for name, error in self.desk.failed.items():
            assert "the budget is spent" in str(error), name


EverythingAtOnce.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestEverythingAtOnce = EverythingAtOnce.TestCase
