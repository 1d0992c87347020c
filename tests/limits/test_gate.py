"""The gate: first come first served at each limit, all or nothing, and no unneeded waiting."""

from __future__ import annotations

import threading
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from abreast.core.outcome import Usage
from abreast.limits.budget import Budget
from abreast.limits.gate import LimitGate
from abreast.limits.limit import MAX_MOVES, ONE, Limit, Need, Ticket
from abreast.limits.pool import Pool
from abreast.limits.rate import Rate
from abreast.limits.slots import Slots
from tests.limits.desk import CountingClock, GateRecorder
from tests.properties import tried

# --- order


def test_at_each_limit_whoever_came_first_goes_first():
    recorder, slots = GateRecorder(), Slots(1)
    for name in range(5):
        recorder.ask(name, slots)
    for name in range(4):
        recorder.give(name)
    assert recorder.granted == [0, 1, 2, 3, 4]


def test_a_retry_asks_with_its_old_place_and_goes_before_those_who_came_after_it():
    recorder, slots = GateRecorder(), Slots(1)
    for name in ("first", "second", "third"):
        recorder.ask(name, slots)
    recorder.give("first")  # it failed, and waits for its backoff
    assert not recorder.ask_again("first")
    recorder.give("second")
    assert recorder.granted == ["first", "second", "first"]
    recorder.give("first")
    assert recorder.granted[-1] == "third"


def test_a_retry_may_pass_those_who_wait_for_more_than_there_is():
    recorder, slots = GateRecorder(), Slots(2)
    recorder.ask("retried", slots)
    recorder.ask("other", slots)
    recorder.ask("all", (slots, Need(weight="all")))
    recorder.give("retried")
    assert recorder.ask_again("retried")
    recorder.give("other")
    recorder.give("retried")
    assert recorder.granted[-1] == "all"


def test_two_tickets_with_one_place_are_served_as_they_came():
    recorder, slots = GateRecorder(), Slots(1)
    for name in ("holder", "a", "b", "later"):
        recorder.ask(name, slots)
        if name == "b":
            recorder.withdraw("b")
            recorder.tickets["b"].order = recorder.tickets["a"].order
            recorder.ask_again("b")
    for name in ("holder", "a", "b"):
        recorder.give(name)
    assert recorder.granted == ["holder", "a", "b", "later"]


# --- independence, all or nothing


def test_a_full_limit_never_delays_those_who_do_not_need_it():
    recorder, full, free = GateRecorder(), Slots(1), Slots(3)
    recorder.ask("holder", full)
    for name in range(20):
        assert not recorder.ask(("stuck", name), full, free)
    for name in range(3):
        assert recorder.ask(name, free)
    assert free.taken == 3


@pytest.mark.parametrize("full_first", [True, False])
def test_who_waits_holds_nothing(full_first):
    recorder, full, free = GateRecorder(), Slots(1), Slots(1)
    recorder.ask("holder", full)
    assert not recorder.ask("both", *((full, free) if full_first else (free, full)))
    assert free.taken == 0
    assert recorder.tickets["both"].holds == ()
    recorder.give("holder")
    assert recorder.granted == ["holder", "both"]
    assert (free.taken, full.taken) == (1, 1)


def test_no_two_tickets_can_wait_for_each_other():
    recorder, left, right = GateRecorder(), Slots(1), Slots(1)
    for name in range(10):
        recorder.ask(name, *((left, right) if name % 2 else (right, left)))
    for name in range(10):
        assert recorder.granted[-1] == name
        recorder.give(name)


def test_a_ticket_that_needs_nothing_is_let_through():
    recorder = GateRecorder()
    assert recorder.ask("free")
    recorder.give("free")


# --- overtaking


@given(schedule=st.randoms(use_true_random=False), wanted=st.integers(2, 3))
@tried(30)
def test_a_ticket_for_several_busy_limits_is_overtaken_a_bounded_number_of_times(schedule, wanted):
    """Each limit is taken again when it is given back: only the gate can free them together."""
    recorder, limits = GateRecorder(), [Slots(1) for _ in range(wanted)]
    for number, limit in enumerate(limits):
        recorder.ask(("single", number, 0), limit)
    recorder.ask("several", *limits)
    for turn in range(1, 10 * MAX_MOVES):
        for number in schedule.sample(range(wanted), wanted):
            recorder.ask(("single", number, turn), limits[number])
            for name in [name for name in recorder.holding if name[1] == number]:
                recorder.give(name)
        if "several" in recorder.granted:
            break
    overtaken_by = recorder.granted.index("several") - wanted
    assert overtaken_by <= (MAX_MOVES + 1) * wanted
    assert overtaken_by >= MAX_MOVES / 2, "the schedule did try to keep it out"


def test_a_ticket_moved_too_often_waits_in_all_its_lines_and_frees_them_when_it_goes():
    recorder, left, right = GateRecorder(), Slots(1), Slots(1)
    with mock.patch("abreast.limits.limit.MAX_MOVES", 1):
        recorder.ask("l", left)
        recorder.ask("r", right)
        recorder.ask("both", left, right)
        recorder.give("l")  # moved to the right, where it waits in all lines
        assert recorder.tickets["both"].in_all_lines
        assert not recorder.ask("after, left", left)
        assert not recorder.ask("after, right", right)
        recorder.give("r")
        assert recorder.granted == ["l", "r", "both"]
        recorder.give("both")
        assert recorder.granted[3:] == ["after, left", "after, right"]
        recorder.check(left, right)


def test_those_behind_a_firm_ticket_go_on_when_it_fails():
    recorder, slots, budget = GateRecorder(), Slots(1), Budget(requests=10, tokens=10)
    with mock.patch("abreast.limits.limit.MAX_MOVES", 0):
        recorder.ask("spender", (budget, Need(tokens=6)))
        recorder.ask("firm", (budget, Need(tokens=9)), slots)
        assert not recorder.ask("behind", slots)
        recorder.give("spender", Usage(1, 6))
        assert "firm" in recorder.failed
        assert "behind" in recorder.holding
    recorder.check(slots, budget)


def test_those_behind_a_firm_ticket_go_on_when_it_fails_at_another_limit():
    recorder, slots, budget = GateRecorder(), Slots(1), Budget(requests=10, tokens=10)
    with mock.patch("abreast.limits.limit.MAX_MOVES", 0):
        recorder.ask("holder", slots)
        recorder.ask("firm", slots, (budget, Need(tokens=9)))
        assert not recorder.ask("behind", (budget, Need(tokens=1)))
        budget.restore({"tokens": 5})
        recorder.give("holder")
        assert "firm" in recorder.failed
        assert "behind" in recorder.holding
    recorder.check(slots, budget)


def test_a_firm_ticket_does_not_put_off_the_timer_of_an_older_one():
    recorder, slots, rate = GateRecorder(), Slots(1), Rate(1, per=1, burst=1)
    with mock.patch("abreast.limits.limit.MAX_MOVES", 0):
        recorder.ask("holder", slots)
        recorder.ask("taker", rate)
        recorder.ask("older", rate)
        recorder.ask("firm", slots, rate)
        recorder.give("holder")  # it is tried, and refused because the older one is before it
        recorder.clock.advance_nowait(1.0)
        assert "older" in recorder.holding
        recorder.clock.advance_nowait(1.0)
        assert "firm" in recorder.holding
    recorder.check(slots, rate)


# --- leaving


def test_who_leaves_the_line_leaves_nothing_behind():
    recorder, slots, rate, pool = GateRecorder(), Slots(1), Rate(1, per=1, burst=1), Pool("a")
    limits = (slots, rate, pool)
    recorder.ask("never asked at once", *limits)
    recorder.give("never asked at once")
    recorder.withdraw("never asked at once")  # neither waiting nor holding: no effect
    recorder.ask("waits for time", *limits)
    assert recorder.clock.next_due is not None
    recorder.withdraw("waits for time")
    recorder.withdraw("waits for time")
    assert recorder.clock.next_due is None, "no timer for an empty line"
    recorder.check(*limits)
    recorder.clock.advance_nowait(10)
    assert recorder.granted == ["never asked at once"]


def test_who_holds_does_not_lose_it_by_withdrawing():
    recorder, slots = GateRecorder(), Slots(1)
    recorder.ask("holder", slots)
    recorder.gate.withdraw(recorder.tickets["holder"])
    assert slots.taken == 1
    recorder.check(slots)


def test_those_behind_one_who_leaves_go_on():
    recorder, slots = GateRecorder(), Slots(2)
    recorder.ask("holder", slots)
    recorder.ask("all", (slots, Need(weight="all")))
    recorder.ask("behind", slots)
    recorder.withdraw("all")
    assert recorder.granted == ["holder", "behind"]


def test_one_who_left_and_comes_back_has_its_old_place():
    recorder, slots = GateRecorder(), Slots(1)
    for name in ("holder", "a", "b"):
        recorder.ask(name, slots)
    recorder.withdraw("a")
    recorder.ask_again("a")
    recorder.give("holder")
    assert recorder.granted == ["holder", "a"]
    recorder.give("a")
    assert recorder.granted == ["holder", "a", "b"]


def test_a_retry_that_did_not_wait_this_time_does_not_say_it_did():
    recorder, slots = GateRecorder(), Slots(1)
    recorder.ask("holder", slots)
    recorder.ask("waits", slots)
    assert recorder.tickets["waits"].parked is slots
    recorder.give("holder")
    recorder.give("waits")
    assert recorder.ask_again("waits")
    assert recorder.tickets["waits"].parked is None


# --- failing


def test_a_ticket_that_can_not_be_served_any_more_is_told_and_those_behind_it_go_on():
    recorder, budget = GateRecorder(), Budget(tokens=10)
    recorder.ask("one", (budget, Need(tokens=6)))
    recorder.ask("too big", (budget, Need(tokens=5)))
    recorder.ask("small", (budget, Need(tokens=2)))
    assert not recorder.failed
    recorder.give("one", Usage(1, 6))
    assert list(recorder.failed) == ["too big"]
    assert recorder.granted == ["one", "small"]
    recorder.check(budget)


def test_a_ticket_that_shows_at_once_to_be_too_big_leaves_nothing_behind():
    recorder, slots, budget = GateRecorder(), Slots(1), Budget(tokens=10)
    recorder.ask("too big", slots, (budget, Need(tokens=11)))
    assert list(recorder.failed) == ["too big"]
    assert slots.taken == 0
    recorder.check(slots, budget)


# --- calls from within callbacks


def test_a_ticket_may_ask_and_give_in_the_moment_it_is_granted():
    recorder, slots, other = GateRecorder(), Slots(1), Slots(1)

    def ask_more() -> None:
        recorder.ask("within", other)
        recorder.ask("waits", slots)
        recorder.give("granted")

    recorder.ask("holder", slots)
    recorder.ask("granted", slots, then=ask_more)
    recorder.ask("behind", slots)
    recorder.give("holder")
    assert recorder.granted == ["holder", "granted", "within", "behind"]
    recorder.give("behind")
    assert recorder.granted[-1] == "waits"
    recorder.check(slots, other)


def test_any_number_of_tickets_may_give_back_in_the_moment_they_are_granted():
    recorder, slots = GateRecorder(), Slots(1)
    recorder.ask("holder", slots)
    for name in range(3000):
        recorder.ask(name, slots, then=lambda name=name: recorder.give(name))
    recorder.give("holder")
    assert recorder.granted == ["holder", *range(3000)]
    recorder.check(slots)


def test_a_ticket_may_withdraw_another_in_the_moment_it_is_granted():
    recorder, slots = GateRecorder(), Slots(2)
    recorder.ask("one", slots)
    recorder.ask("two", slots)
    recorder.ask("granted", slots, then=lambda: recorder.withdraw("next"))
    recorder.ask("next", slots)
    recorder.ask("last", slots)
    recorder.gate.give([*recorder.holding.pop("one"), *recorder.holding.pop("two")])
    assert recorder.granted == ["one", "two", "granted", "last"]
    recorder.check(slots)


def test_what_a_callback_raises_reaches_the_one_who_gave_and_the_gate_goes_on():
    recorder, slots = GateRecorder(), Slots(1)
    recorder.ask("holder", slots)
    recorder.ask("raises", slots, then=lambda: 1 / 0)
    recorder.ask("behind", slots)
    with pytest.raises(ZeroDivisionError):
        recorder.give("holder")
    recorder.give("raises")
    assert recorder.granted == ["holder", "raises", "behind"]


# --- shared limits


def test_two_gates_that_share_a_limit_share_its_line():
    clock, slots = CountingClock(), Slots(1)
    one, other = GateRecorder(clock=clock), GateRecorder(clock=clock)
    one.ask("a", slots)
    other.ask("b", slots)
    one.ask("c", slots)
    one.give("a")
    assert (one.granted, other.granted) == (["a"], ["b"])
    other.give("b")
    assert one.granted == ["a", "c"]


def test_a_gate_wakes_at_its_time_those_who_wait_at_another():
    clock, rate = CountingClock(), Rate(1, per=1, burst=1)
    one, other = GateRecorder(clock=clock), GateRecorder(clock=clock)
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
    recorder, slots = GateRecorder(), Slots(1)
    recorder.ask("holder", slots)
    if waiting:
        recorder.ask("waits", slots)
    error = in_a_thread(
        lambda: LimitGate(CountingClock()).ask(Ticket([("lane", slots, ONE)], print, print))
    )
    assert isinstance(error, RuntimeError)
    assert "in use on another event loop's thread" in str(error)
    assert slots.taken == 1


def test_a_limit_that_nobody_uses_may_go_to_another_thread():
    recorder, slots = GateRecorder(), Slots(1)
    recorder.ask("holder", slots)
    recorder.ask("waits", slots)
    recorder.withdraw("waits")
    recorder.give("holder")
    assert in_a_thread(lambda: GateRecorder().ask("elsewhere", slots)) is True
    with pytest.raises(RuntimeError, match="another event loop"):
        recorder.ask("back", slots)


# --- any order of calls


class EverythingAtOnce(RuleBasedStateMachine):
    """Makes all calls in any order, lets time pass, changes sizes, and checks the laws."""

    @initialize(
        patience=st.sampled_from([0, 1, 2, 16]),
        sizes=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
        tokens=st.integers(10, 60),
    )
    def open(self, patience: int, sizes: tuple[int, int, int], tokens: int) -> None:
        self.patch = mock.patch("abreast.limits.limit.MAX_MOVES", patience)
        self.patch.start()
        self.recorder = GateRecorder()
        self.slots, self.more = Slots(sizes[0]), Slots(sizes[1])
        self.pool = Pool(range(sizes[2]))
        self.rate = Rate(2, per=1, burst=2)
        self.budget = Budget(requests=100, tokens=tokens)
        self.limits: list[Limit] = [self.slots, self.more, self.pool, self.rate, self.budget]
        self.names = 0

    def teardown(self) -> None:
        if not hasattr(self, "recorder"):
            return
        try:
            self.everyone_has_their_turn()
        finally:
            self.patch.stop()

    def everyone_has_their_turn(self) -> None:
        recorder = self.recorder
        for _ in range(200):
            for name in list(recorder.holding):
                if name in recorder.holding:
                    recorder.give(name, Usage(1))
            recorder.clock.advance_nowait(1.0)
            self.the_books_are_right()
            if not recorder.waiting and not recorder.holding:
                break
        assert not recorder.waiting, "everyone has had their turn"
        assert not recorder.holding
        assert [limit.line.users for limit in self.limits] == [0] * 5
        assert recorder.clock.next_due is None, "no timer is left"

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
        self.recorder.ask(
            name, *((self.limits[one], need) for one in which), then=lambda: self.react(name, then)
        )

    def react(self, name: int, then: str) -> None:
        recorder = self.recorder
        if then == "give":
            recorder.give(name, Usage(1))
        elif then == "ask":
            self.names += 1
            recorder.ask(self.names, self.slots, self.pool)
        elif then == "leave" and recorder.waiting:
            recorder.withdraw(min(recorder.waiting))

    @precondition(lambda self: self.recorder.holding)
    @rule(which=st.integers(0, 20), share=st.sampled_from([0, 0.5, 1, None]))
    def give(self, which: int, share: float | None) -> None:
        name = sorted(self.recorder.holding)[which % len(self.recorder.holding)]
        asked = max((hold.need.tokens for hold in self.recorder.holding[name]), default=0)
        self.recorder.give(name, None if share is None else Usage(1, int(asked * share)))

    @precondition(lambda self: self.recorder.holding)
    @rule(which=st.integers(0, 20))
    def give_and_ask_again(self, which: int) -> None:
        name = sorted(self.recorder.holding)[which % len(self.recorder.holding)]
        self.recorder.give(name, Usage(1))
        self.recorder.ask_again(name)

    @precondition(lambda self: self.recorder.waiting)
    @rule(which=st.integers(0, 20))
    def leave(self, which: int) -> None:
        self.recorder.withdraw(sorted(self.recorder.waiting)[which % len(self.recorder.waiting)])

    @rule(seconds=st.sampled_from([0.5, 1.0, 4.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.recorder.clock.advance_nowait(seconds)

    @rule(count=st.integers(1, 4))
    def resize(self, count: int) -> None:
        self.slots.resize(count)
        self.recorder.gate.serve(self.slots)

    @invariant()
    def the_books_are_right(self) -> None:
        self.recorder.check(*self.limits)
        assert (
            self.budget.spent["tokens"] + self.budget.reserved["tokens"]
            <= self.budget.caps["tokens"]
        )

    @invariant()
    def who_failed_could_not_have_been_served(self) -> None:
        for name, error in self.recorder.failed.items():
            assert "the budget is spent" in str(error), name


EverythingAtOnce.TestCase.settings = tried(150, stateful_step_count=40)
TestEverythingAtOnce = EverythingAtOnce.TestCase
