"""The search for the number of calls that a provider accepts at once."""

from abreast.limits.governor.concurrency_search import ConcurrencySearch

NO_WAIT = (0.0, None, 1.0)


class Calls:
    """Sends calls to a search one at a time, each beside as many others as it allows."""

    def __init__(self, known):
        self.search = ConcurrencySearch(known=known)
        self.serial = 0

    def send(self):
        self.serial += 1
        self.search.has_room(self.search.limit, float(self.serial))  # the limit is reached
        return self.serial, self.search.limit - 1

    def accepted(self, count=1):
        for _ in range(count):
            serial, beside = self.send()
            self.search.accept(serial, float(serial), beside, ended=True)

    def rejected(self):
        serial, beside = self.send()
        return self.search.reject(serial, serial, beside, NO_WAIT)


def accepted_until_trial(calls):
    limit, count = calls.search.limit, 0
    while calls.search.limit == limit:
        calls.accepted()
        count += 1
        assert count < 1000
    return count


def test_each_trial_that_fails_makes_the_next_one_rarer():
    calls = Calls(known=31)
    calls.rejected()
    assert calls.search.limit == 30
    waits = []
    for _ in range(4):
        waits.append(accepted_until_trial(calls))
        assert calls.search.limit == 31
        calls.rejected()
        assert calls.search.limit == 30
    assert waits == [180, 540, 540, 540]


def test_one_more_that_is_accepted_is_followed_by_two_and_four():
    calls = Calls(known=101)
    calls.rejected()
    accepted_until_trial(calls)
    assert calls.search.limit == 101
    grown = []
    for _ in range(4):
        calls.accepted(3)
        assert calls.search.limit == (grown or [101])[-1]  # some calls may just have ended
        calls.accepted()
        grown.append(calls.search.limit)
    assert grown == [102, 104, 108, 116]


def test_rejections_in_a_row_cut_more_and_more():
    calls = Calls(known=65)
    limits = []
    for _ in range(5):
        calls.rejected()
        limits.append(calls.search.limit)
    assert limits == [64, 62, 58, 50, 34]


def test_a_call_sent_before_a_rejection_does_not_end_a_row_of_them():
    calls = Calls(known=65)
    early, beside = calls.send()
    calls.rejected()
    calls.search.accept(early, float(early), beside, ended=True)
    calls.rejected()
    assert calls.search.limit == 62


def test_after_a_cut_by_guess_more_are_tried_soon():
    calls = Calls(known=65)
    calls.rejected()
    calls.rejected()
    assert accepted_until_trial(calls) <= 5


def test_a_limit_that_halves_is_not_taken_for_the_same():
    calls = Calls(known=3)
    calls.rejected()
    first = accepted_until_trial(calls)
    calls.rejected()
    assert calls.search.limit == 2
    calls.accepted()
    calls.rejected()
    assert calls.search.limit == 1
    assert accepted_until_trial(calls) <= first


def test_more_are_tried_sooner_and_more_often_after_fewer_were_taken_than_before():
    steady, fallen = Calls(known=31), Calls(known=61)
    steady.rejected()
    fallen.rejected()
    fallen.accepted()
    while fallen.search.limit > steady.search.limit:
        fallen.search.reject(fallen.serial + 1, fallen.serial + 1, 30, NO_WAIT)
        fallen.accepted()
    waits = []
    for calls in (steady, fallen):
        before = [accepted_until_trial(calls)]
        calls.rejected()
        waits.append([*before, accepted_until_trial(calls)])
    assert waits[1][0] <= waits[0][0] / 2
    assert waits[1][1] / waits[1][0] < waits[0][1] / waits[0][0]


def test_a_number_that_was_accepted_is_kept_if_more_are_too_many():
    calls = Calls(known=31)
    calls.rejected()
    accepted_until_trial(calls)
    calls.accepted(4)
    assert calls.search.limit == 32
    calls.search.reject(calls.serial + 1, calls.serial + 1, 28, NO_WAIT)  # calls overtake others
    assert calls.search.limit == 31


def test_the_first_trial_comes_after_many_calls():
    calls = Calls(known=31)
    calls.rejected()
    assert accepted_until_trial(calls) > 150  # of 200 calls one is rejected, not three
