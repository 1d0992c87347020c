"""Which parts of a plan become stacked branches, and in which order."""

from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.plan.review.branches import stacks_of

PARTS = [f"part{number}" for number in range(8)]
changes = st.fixed_dictionaries(
    {part: st.sets(st.sampled_from("abcdefghijkl"), max_size=3) for part in PARTS}
)
# A part may need parts of smaller rank, wherever these are in the plan.
needs = st.tuples(
    st.permutations(PARTS), st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=6)
).map(
    lambda drawn: {
        drawn[0][high]: [drawn[0][low] for low, other in drawn[1] if other == high and low < high]
        for high in range(8)
    }
)


@given(changes, needs)
def test_parts_of_different_stacks_share_nothing_and_each_comes_after_what_it_needs(changed, need):
    stacks = stacks_of(PARTS, changed, need)
    assert sorted(part for stack in stacks for part in stack) == PARTS
    files = [set().union(*(changed[part] for part in stack)) for stack in stacks]
    assert sum(map(len, files)) == len(set().union(*files))
    for stack in stacks:
        for part in stack:
            assert all(stack.index(one) < stack.index(part) for one in need[part])


@given(changes)
def test_parts_that_share_nothing_are_alone_and_others_keep_their_order(changed):
    for stack in stacks_of(PARTS, changed, {}):
        assert stack == sorted(stack)
        others = [changed[part] for part in PARTS if part not in stack]
        assert all(changed[part].isdisjoint(each) for part in stack for each in others)
        if len(stack) > 1:
            assert all(changed[part] for part in stack)
