"""The branch order in every order of events: which branch may draw, must stop, wins."""

from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.sample.branch_order import BranchOrder

shapes = st.tuples(st.integers(1, 5), st.integers(1, 5))
places = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)
orders = st.lists(st.integers(0, 4), min_size=60, max_size=60)


class Track:
    """Lets the branches of an order draw, one event at a time, in a given sequence."""

    def __init__(self, shape, good, pick="ordered", *, early=True):
        self.breadth, self.depth = shape
        self.good = good
        self.ordered = pick == "ordered"
        self.race = BranchOrder(self.breadth, self.depth, pick, early=early)
        self.at = {}  # by branch: the round in which it draws
        self.drawn = []
        self.ended = []
        self.stopped = []
        for branch in range(self.breadth):
            self.start(branch, 0)

    def start(self, branch, number):
        best = self.race.best
        if self.race.may_draw(branch, number):
            # Only a draw that comes before a pass may start.
            assert best is None or (self.ordered and (number, branch) < best)
            self.at[branch] = number
        else:
            self.at.pop(branch, None)
            self.ended.append(branch)

    def end(self, branch):
        """End the draw of a branch."""
        number = self.at.pop(branch)
        self.drawn.append((number, branch))
        if (branch, number) not in self.good:
            self.start(branch, number + 1)
            return
        beaten = self.race.passed(branch, number)
        best = self.race.best if self.ordered else None
        assert best is None or all((self.at[other], other) > best for other in beaten)
        self.stopped += beaten
        for other in beaten:
            del self.at[other]
        assert best is None or all((now, other) < best for other, now in self.at.items())

    def run(self, order):
        for wanted in order:
            if not self.at:
                break
            self.end(sorted(self.at)[wanted % len(self.at)])
        while self.at:
            self.end(min(self.at))
        return self.race.best


@given(shapes, places, orders)
def test_the_least_round_and_branch_that_passes_wins_in_every_order_and_nothing_behind_it_goes_on(
    shape, good, order
):
    track = Track(shape, good)
    best = track.run(order)
    wanted = min(((r, b) for b, r in good if b < shape[0] and r < shape[1]), default=None)
    assert best == wanted
    everything = {(r, b) for b in range(shape[0]) for r in range(shape[1])}
    assert {place for place in everything if wanted is None or place <= wanted} <= set(track.drawn)
    assert len(track.drawn) == len(set(track.drawn))
    if wanted is None:
        assert track.stopped == []


@given(shapes, places, orders)
def test_with_first_the_first_to_pass_wins_and_all_others_stop_at_once(shape, good, order):
    track = Track(shape, good, "first")
    best = track.run(order)
    passed = [place for place in track.drawn if place[::-1] in good]
    assert passed == ([] if best is None else [best])
    assert best is None or track.drawn[-1] == best


@given(shapes, places, orders)
def test_a_race_that_is_not_early_lets_every_branch_draw_until_it_passes_or_is_at_its_end(
    shape, good, order
):
    track = Track(shape, good, early=False)
    assert track.run(order) is None
    for branch in range(shape[0]):
        last = min((r for b, r in good if b == branch and r < shape[1]), default=shape[1] - 1)
        assert [r for r, b in track.drawn if b == branch] == list(range(last + 1))


def test_a_branch_that_has_ended_starts_no_more():
    race = BranchOrder(2, 3)
    race.ended(0)
    assert not race.may_draw(0, 1)
    assert race.passed(1, 0) == []
    assert not race.may_draw(1, 1)
