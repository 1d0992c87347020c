"""The score of a plan: figures computed by hand, and bounds that hold for every schedule."""

import heapq
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.decompose.score import Hub, Pair, ScoreBound, dependencies, in_groups, score
from abreast.jobs.plan.spec import Options
from tests.jobs.plan.trees import edges_of, layouts, pairs, paths_of, weighed

FILES = {"a/1.py": 10, "a/2.py": 20, "b/1.py": 40, "c/1.py": 30, "d/1.py": 100, "d/2.py": 0}
EDGES = {
    "a/1.py": ["a/2.py", "b/1.py"],
    "a/2.py": ["b/1.py"],
    "b/1.py": ["c/1.py"],
    "d/1.py": ["c/1.py", "b/1.py"],
    "gone.py": ["a/1.py"],
    "c/1.py": ["gone.py"],
}


@pytest.fixture
def planned():
    imports = Imports.of(EDGES)
    return decompose(Inventory.of(FILES), imports, Options(min_files=1, max_files=2)), imports


def test_the_figures_of_a_small_plan_by_hand(planned):
    plan, imports = planned
    a, b, c, d = (plan.owner(f"{name}/1.py") for name in "abcd")
    found = score(plan, imports, widths=(1, 2, 3, 50))
    assert found.leaves == 4
    assert found.tokens == {a: 30, b: 40, c: 30, d: 100}
    assert found.cut_ratio == 5 / 6
    assert found.conflict_pairs == tuple(
        sorted(
            [
                Pair(*sorted((a, b)), 2),
                Pair(*sorted((b, c)), 1),
                Pair(*sorted((c, d)), 1),
                Pair(*sorted((b, d)), 1),
            ],
            key=lambda pair: (-pair.imports, pair.first, pair.second),
        )
    )
    assert found.critical_path == (c, b, d)
    assert found.critical_tokens == 170
    assert found.cycles == ()
    assert found.hubs == ()
    assert found.speedup == (
        ScoreBound(1, 1, 1),
        ScoreBound(2, 2, 200 / 170),
        ScoreBound(3, 2, 200 / 170),
        ScoreBound(50, 2, 200 / 170),
    )
    assert dependencies(plan, imports) == {a: (b,), b: (c,), c: (), d: tuple(sorted((b, c)))}


def test_a_file_that_three_other_leaves_import_is_a_hub(planned):
    plan, _ = planned
    imports = Imports.of({**EDGES, "c/1.py": ["b/1.py"], "b/1.py": []})
    assert score(plan, imports).hubs == (Hub("b/1.py", plan.owner("b/1.py"), 4, 3),)


def test_leaves_in_a_circle_are_named_and_the_heaviest_of_them_counts(planned):
    plan, _ = planned
    a, b, c, d = (plan.owner(f"{name}/1.py") for name in "abcd")
    found = score(
        plan, Imports.of({"a/1.py": ["b/1.py"], "b/1.py": ["a/2.py"], "d/1.py": ["a/1.py"]})
    )
    assert found.cycles == ((a, b),)
    assert found.critical_path == (b, d)
    assert not {a, c} & set(found.critical_path)


def test_leaves_in_a_circle_are_one_group():
    needs = {"a": ["b"], "b": ["c", "e"], "c": ["b", "d"], "d": [], "e": [], "f": ["c"]}
    group = ("d", "e")
    assert in_groups(needs) == {
        "a": ("b", "c"),
        "b": group,
        "c": group,
        "d": (),
        "e": (),
        "f": ("b", "c"),
    }
    assert in_groups({"a": ["b"], "b": ["a"]}) == {"a": (), "b": ()}


def test_without_imports_nothing_is_cut_and_the_heaviest_leaf_is_the_path(planned):
    plan, _ = planned
    found = score(plan)
    assert (found.cut_ratio, found.hubs, found.conflict_pairs) == (0.0, (), ())
    assert found.critical_path == (plan.owner("d/1.py"),)
    assert [bound.max_parallel for bound in found.speedup] == list(range(1, 51))
    assert dependencies(plan) == {leaf.id: () for leaf in plan.leaves}


def test_leaves_above_the_budget_are_listed():
    plan = decompose(Inventory.of({"a": 5, "b": 1}), options=Options(max_tokens=2))
    assert score(plan).over_budget == (plan.owner("a"),)
    assert score(decompose(Inventory(()))).speedup[9].parallel == 1


def makespan(work, needs, width):
    """A greedy schedule: whatever is ready, in order."""
    waiting, running, done, now = list(work), [], set(), 0
    while waiting or running:
        for leaf in [leaf for leaf in waiting if done.issuperset(needs[leaf])]:
            if len(running) < width:
                waiting.remove(leaf)
                heapq.heappush(running, (now + work[leaf], leaf))
        now, ended = heapq.heappop(running)
        done.add(ended)
    return now


def longest(work, needs):
    @cache
    def until(leaf):
        return work[leaf] + max(map(until, needs[leaf]), default=0)

    return max(map(until, work))


def test_the_critical_path_is_the_heaviest_chain_and_not_the_chain_of_the_heaviest():
    files = {"a/1": 30, "b/1": 30, "c/1": 30, "d/1": 80}
    imports = Imports.of({"a/1": ["b/1"], "b/1": ["c/1"]})
    plan = decompose(Inventory.of(files), imports, Options(min_files=1, max_files=1))
    found = score(plan, imports)
    assert found.critical_path == tuple(plan.owner(f"{name}/1") for name in "cba")
    assert (found.critical_tokens, found.speedup[9].ordered) == (90, 170 / 90)


def test_the_critical_path_follows_the_order_that_is_written():
    files = {"a/1": 30, "b/1": 30, "c/1": 30, "d/1": 80}
    plan = decompose(Inventory.of(files), Imports.of({"a/1": ["b/1"]}), Options(max_files=1))
    a, b, c, d = (plan.owner(f"{name}/1") for name in "abcd")
    found = score(plan, needs={a: (), b: (), c: (d,), d: ()})
    assert (found.critical_path, found.critical_tokens) == ((d, c), 110)


@given(layouts, pairs, st.sampled_from([1, 2, 3, 10]))
def test_no_schedule_beats_the_bounds(layout, numbers, width):
    paths = paths_of(layout)
    forward = Imports.of(
        {
            path: [to for to in targets if to > path]
            for path, targets in edges_of(paths, numbers).edges.items()
        }
    )
    plan = decompose(weighed(paths), forward)
    found = score(plan, forward, widths=[width])
    (bound,) = found.speedup
    work = {leaf.id: max(1, leaf.tokens) for leaf in plan.leaves}
    total = sum(work.values())
    assert total / makespan(work, dict.fromkeys(work, ()), width) <= bound.parallel + 1e-9
    if not found.cycles:
        ordered = total / makespan(work, dependencies(plan, forward), width)
        assert ordered <= bound.ordered + 1e-9
        assert sum(work[leaf] for leaf in found.critical_path) == longest(
            work, dependencies(plan, forward)
        )
    assert 1 <= bound.ordered <= bound.parallel <= width
