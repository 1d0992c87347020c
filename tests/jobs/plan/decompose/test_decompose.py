"""Division of a repository: every structural promise as a property, and the required depths."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import ROOT, NodeKind, Options, Reason
from tests.jobs.plan.trees import (
    assert_sound,
    budgets,
    edges_of,
    elsewhere,
    folders,
    large_layout,
    layouts,
    pairs,
    paths_of,
    plan_of,
    weighed,
)


def leaf_of(plan, path):
    return plan.node(plan.owner(path))


def flat(count, folder="d"):
    return [f"{folder}/f{number:05}.py" for number in range(count)]


def clique(paths):
    """Connected files without a cycle: each imports the next two."""
    return {path: paths[place + 1 : place + 3] for place, path in enumerate(paths)}


# --- the tree


@given(layouts, pairs, budgets | st.just(Options()))
def test_links_depths_files_and_reasons_are_right_at_every_level(layout, numbers, options):
    assert_sound(plan_of(layout, numbers, options), weighed(paths_of(layout)))


def test_a_parent_with_many_deep_children_links_to_its_own_children():
    paths = [
        f"{top}/{low}/{number}.py" for top in "abcdefgh" for low in "xyz" for number in range(12)
    ]
    plan = decompose(Inventory.of(paths))
    assert [plan.node(child).scope for child in plan.root.children] == [
        f"{top}/" for top in "abcdefgh"
    ]
    for top in plan.children(plan.root):
        assert [child.scope for child in plan.children(top)] == [
            f"{top.scope}{low}/" for low in "xyz"
        ]


@given(layouts, pairs)
def test_circles_of_imports_are_never_cut_within_a_directory(layout, numbers):
    paths = paths_of(layout)
    by_folder = {}
    for path in paths:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    edges = {path: set(to) for path, to in edges_of(paths, numbers).edges.items()}
    circles = [files[1:6] for files in by_folder.values() if len(files) > 5]
    for circle in circles:
        for one, two in zip(circle, [*circle[1:], circle[0]], strict=True):
            edges.setdefault(one, set()).add(two)
    for options in (Options(), Options(min_files=1, max_files=3)):
        plan = decompose(Inventory.of(paths), Imports.of(edges), options)
        for circle in circles:
            assert len({plan.owner(path) for path in circle}) == 1


# --- the same everywhere


@given(layouts, pairs, st.integers())
def test_any_order_of_the_files_gives_the_same_tree(layout, numbers, seed):
    paths = paths_of(layout)
    imports = edges_of(paths, numbers)
    shuffled = random.Random(seed).sample(paths, len(paths))
    turned = Imports.of({path: reversed(imports.edges[path]) for path in reversed(imports.edges)})
    assert decompose(Inventory.of(shuffled), turned) == decompose(Inventory.of(paths), imports)


@given(layouts, pairs, st.sampled_from(["/tmp/pytest-1/x", "/home/someone/work", "/a"]))
def test_an_absolute_prefix_changes_nothing(layout, numbers, prefix):
    paths = paths_of(layout)
    beneath = Inventory.of([f"{prefix}/{path}" for path in paths], root=prefix)
    imports = edges_of(paths, numbers)
    assert decompose(beneath, imports) == decompose(Inventory.of(paths), imports)


PROGRAM = """
from tests.jobs.plan.trees import edges_of, large_layout, weighed
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.spec import Options
from abreast.jobs.plan.decompose.score import score
paths = sorted(large_layout())
imports = edges_of(paths, [(17 * n, 31 * n * n) for n in range(6000)])
for options in (Options(), Options(max_files=7)):
    plan = decompose(weighed(paths), imports, options)
    print(plan.nodes, plan.steps, score(plan, imports))
"""


def test_any_hash_seed_gives_the_same_tree_and_score():
    path = os.pathsep.join([str(Path(__file__).parents[4]), *filter(None, sys.path)])
    printed = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(printed) == 1
    assert len(printed.pop()) > 10_000


@given(
    layouts,
    pairs,
    folders,
    st.sampled_from([Options(), Options(max_files=12), Options(min_files=3)]),
)
def test_a_file_added_elsewhere_leaves_ids_and_files_as_they_were(layout, numbers, folder, options):
    new = f"{folder}/new.py" if folder else "new.py"
    paths = paths_of(layout)
    imports = edges_of(paths, numbers)
    before = decompose(Inventory.of(paths), imports, options)
    edges = {**imports.edges, new: paths[:9]}  # what it imports doesn't matter either
    for path in paths[::3]:
        edges[path] = (*edges.get(path, ()), new)
    after = {
        node.id: node
        for node in decompose(Inventory.of([*paths, new]), Imports.of(edges), options).nodes
    }
    for node in before.nodes:
        if elsewhere(node, new):
            assert after[node.id].files == node.files


def test_ids_are_fit_for_branches_and_paths_and_don_t_depend_on_content():
    odd = [
        "späße/ü.py",
        "a b/\n.py",
        "..a/-",
        "a/@{1}.py",
        "\udcff/\udcfe.py",
        "HUGE/" + "x" * 200,
        "--help/x",
    ]
    paths = [f"{path}{number}" for path in odd for number in range(12)]
    plan = decompose(Inventory.of(paths), options=Options(max_files=4))
    for node in plan.nodes:
        assert set(node.id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert not node.id.startswith("-")
        assert len(node.id) <= 40
    assert {node.id for node in plan.nodes} == {
        node.id
        for node in decompose(
            Inventory.of(dict.fromkeys(paths, 9)), options=Options(max_files=4)
        ).nodes
    }


# --- how deep


def test_a_large_realistic_layout_reaches_depth_four_by_real_divisions():
    paths = large_layout()
    assert len(paths) >= 2_000
    plan = decompose(Inventory.of(paths))
    assert_sound(plan, Inventory.of(paths))
    assert plan.max_depth_reached >= 4
    deep = [leaf for leaf in plan.leaves if leaf.depth >= 4]
    assert len(deep) >= 40
    assert {plan.node(leaf.parent).reason for leaf in deep} == {Reason.DIRECTORIES}


@pytest.mark.parametrize(
    ("tops", "mids", "lows", "each"), [(2, 2, 2, 5), (4, 5, 2, 1), (2, 4, 5, 1), (1, 2, 4, 5)]
)
def test_forty_files_over_three_levels_are_at_most_two_deep(tops, mids, lows, each):
    paths = [
        f"top{a}/mid{b}/low{c}/f{n}.py"
        for a in range(tops)
        for b in range(mids)
        for c in range(lows)
        for n in range(each)
    ]
    assert len(paths) == 40
    assert 1 <= decompose(Inventory.of(paths)).max_depth_reached <= 2


@pytest.mark.parametrize("counts", [(11, 11, 11, 7), (11, 11, 9, 9), (7, 11, 11, 11)])
@pytest.mark.parametrize("beside", ["", "own/"])
def test_forty_files_each_level_of_which_is_worth_a_part_are_at_most_two_deep(counts, beside):
    """Nested directories, each with enough files for a part: divided at every level, depth 3."""
    paths = [
        f"{'in/' * level}{beside}{number}.py"
        for level, count in enumerate(counts)
        for number in range(count)
    ]
    assert len(paths) == 40
    assert 1 <= decompose(Inventory.of(paths)).max_depth_reached <= 2


@given(st.lists(folders, min_size=40, max_size=40), pairs)
def test_forty_files_are_at_most_two_deep_however_they_are_nested(places, numbers):
    paths = sorted(
        f"{folder}/{number}.py" if folder else f"{number}.py"
        for number, folder in enumerate(places)
    )
    assert decompose(Inventory.of(paths), edges_of(paths, numbers)).max_depth_reached <= 2


def test_forty_files_of_which_each_level_keeps_a_quarter_are_at_most_two_deep():
    layout = {"": 11, "a": 11, "a/b": 11, "a/b/c": 7}
    assert plan_of(layout).max_depth_reached <= 2


def test_a_chain_of_directories_is_one_node_and_so_is_a_very_long_one():
    paths = [f"{'deep/' * 1500}{part}/{number}.py" for part in "ab" for number in range(30)]
    plan = decompose(Inventory.of(paths))
    assert plan.max_depth_reached == 1
    assert [node.scope[-7:] for node in plan.leaves] == ["deep/a/", "deep/b/"]


def test_ten_thousand_alike_files_end_at_once():
    paths = flat(10_000)
    plan = decompose(Inventory.of(paths))
    assert plan.steps <= 4  # directories, then components and communities: each tried once
    (leaf,) = plan.nodes
    assert (leaf.reason, leaf.depth, leaf.over_budget) == (Reason.NO_PROGRESS, 0, False)


def test_ten_thousand_alike_files_above_a_budget_are_divided_in_one_step():
    plan = decompose(Inventory.of(flat(10_000)), options=Options(max_files=100))
    assert len(plan.leaves) == 100
    assert plan.max_depth_reached == 1
    assert plan.steps <= 4
    assert plan.root.reason is Reason.NAMES


def test_steps_grow_with_what_is_divided_and_not_with_the_depth_allowed():
    paths = [f"{top}/{path}" for top in "ab" for path in flat(500)]
    assert decompose(Inventory.of(paths), options=Options(max_depth=8)).steps == (
        decompose(Inventory.of(paths), options=Options(max_depth=500)).steps
    )


# --- reasons and budgets


def test_each_reason_of_a_leaf():
    paths = [*flat(5, "small"), *flat(30, "alike"), *flat(40, "deep/x"), *flat(40, "deep/y")]
    plan = decompose(Inventory.of(paths), options=Options(max_depth=1))
    assert leaf_of(plan, "small/f00000.py").reason is Reason.MIN_FILES
    assert leaf_of(plan, "alike/f00000.py").reason is Reason.MAX_DEPTH
    assert leaf_of(plan, "deep/x/f00000.py").scope == "deep/"
    plan = decompose(Inventory.of(paths))
    assert leaf_of(plan, "alike/f00000.py").reason is Reason.NO_PROGRESS
    plan = decompose(Inventory.of(paths), options=Options(max_files=50))
    assert leaf_of(plan, "alike/f00000.py").reason is Reason.FITS
    assert leaf_of(plan, "small/f00000.py").reason is Reason.MIN_FILES


@pytest.mark.parametrize("limit", [{}, {"max_files": 12}, {"max_tokens": 60}, {"max_tokens": 500}])
def test_neither_files_nor_tokens_stop_a_large_project_from_being_divided_further(limit):
    plan = decompose(weighed(sorted(large_layout())), options=Options(**limit))
    assert plan.max_depth_reached >= 4
    for leaf in plan.leaves:
        assert len(leaf.files) <= limit.get("max_files", 2_600)
        assert leaf.tokens <= limit.get("max_tokens", 100_000)
        assert (leaf.reason is Reason.MIN_FILES) == (len(leaf.files) <= 10)
    reasons = {leaf.reason for leaf in plan.leaves}
    assert reasons <= {Reason.MIN_FILES, Reason.FITS if limit else Reason.NO_PROGRESS}


def test_without_a_budget_no_leaf_stops_because_it_would_fit_one():
    plan = decompose(Inventory.of(large_layout()))
    assert all(leaf.reason is not Reason.FITS for leaf in plan.leaves)
    assert not any(leaf.over_budget for leaf in plan.nodes)


@given(layouts, pairs, st.integers(1, 20))
def test_a_budget_of_files_is_kept_where_imports_are_no_circle(layout, numbers, most):
    paths = paths_of(layout)
    forward = Imports.of(
        {
            path: [to for to in targets if to > path]
            for path, targets in edges_of(paths, numbers).edges.items()
        }
    )
    plan = decompose(Inventory.of(paths), forward, Options(max_files=most, max_depth=100))
    assert all(len(leaf.files) <= most for leaf in plan.leaves)
    assert not any(leaf.over_budget for leaf in plan.leaves)


def test_a_budget_divides_even_what_has_few_files():
    plan = decompose(Inventory.of(dict.fromkeys(flat(4), 100)), options=Options(max_tokens=250))
    assert [len(leaf.files) for leaf in plan.leaves] == [2, 2]


def test_above_the_budget_at_the_greatest_depth_is_marked():
    plan = decompose(Inventory.of(flat(30)), options=Options(max_depth=0, max_files=3))
    assert [(leaf.reason, leaf.over_budget) for leaf in plan.leaves] == [(Reason.MAX_DEPTH, True)]


def test_one_file_or_one_circle_above_the_budget_is_marked():
    plan = decompose(Inventory.of({"big.py": 1_000, "small.py": 1}), options=Options(max_tokens=10))
    assert [(leaf.reason, leaf.over_budget) for leaf in plan.leaves] == [
        (Reason.NO_PROGRESS, True),
        (Reason.MIN_FILES, False),
    ]
    paths = flat(6)
    circle = Imports.of(
        {one: [two] for one, two in zip(paths, [*paths[1:], paths[0]], strict=True)}
    )
    (leaf,) = decompose(Inventory.of(paths), circle, Options(max_files=2)).leaves
    assert (leaf.reason, leaf.over_budget) == (Reason.NO_PROGRESS, True)


def test_an_empty_repository_is_one_leaf_without_files():
    (leaf,) = decompose(Inventory(())).nodes
    assert (leaf.id, leaf.files, leaf.reason, leaf.leaf) == (ROOT, (), Reason.MIN_FILES, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_depth": -1},
        {"min_files": 0},
        {"min_files": None},
        {"max_files": 0},
        {"max_tokens": 2.5},
        {"max_depth": True},
    ],
)
def test_options_that_can_t_be_counted_by_are_refused(wrong):
    with pytest.raises(PlanInvalid, match=next(iter(wrong))):
        Options(**wrong)


@pytest.mark.parametrize("path", ["/a", "../a", "a//b", "a/./b", "", "a/"])
def test_a_path_that_is_not_from_the_root_is_refused(path):
    with pytest.raises(PlanInvalid, match="not a path from the root"):
        Inventory.of([path])


# --- what files import


def test_one_directory_is_divided_where_no_import_leads():
    left, right = flat(20)[:10], flat(20)[10:]
    plan = decompose(Inventory.of(flat(20)), Imports.of({**clique(left), **clique(right)}))
    assert plan.root.reason is Reason.IMPORTS
    assert [list(leaf.files) for leaf in plan.leaves] == [left, right]


def test_components_that_are_small_are_put_together():
    large, small = flat(42)[:30], flat(42)[30:]
    pairs_of_two = {one: [two] for one, two in zip(small[::2], small[1::2], strict=True)}
    plan = decompose(
        Inventory.of(flat(42)),
        Imports.of({**{path: [large[0]] for path in large[1:4]}, **clique(large), **pairs_of_two}),
    )
    assert small in [list(leaf.files) for leaf in plan.leaves]
    plan = decompose(
        Inventory.of(flat(24)), Imports.of({**clique(flat(24)[:10]), **clique(flat(24)[10:21])})
    )
    # Three single files are added to the smaller part.
    assert [len(leaf.files) for leaf in plan.leaves] == [13, 11]


def test_what_hangs_together_is_divided_where_it_is_thinnest():
    left, right = flat(30)[:15], flat(30)[15:]
    edges = {
        path: [to for to in (*left, *right) if to > path and (to in left) == (path in left)][:4]
        for path in flat(30)
    }
    edges[left[0]] = [*edges[left[0]], right[0]]
    plan = decompose(Inventory.of(flat(30)), Imports.of(edges))
    assert plan.root.reason is Reason.COMMUNITIES
    assert [list(leaf.files) for leaf in plan.leaves] == [left, right]


def test_hubs_have_one_writer_of_their_own():
    paths = flat(40)
    edges = {path: [paths[0], paths[7]] for path in paths[8:]}
    plan = decompose(Inventory.of(paths), Imports.of(edges))
    first, *rest = plan.children(plan.root)
    assert (first.kind, first.files) == (NodeKind.HUBS, (paths[0], paths[7]))
    assert all(node.kind is NodeKind.CLUSTER for node in rest)
    assert plan.root.reason is Reason.IMPORTS


@pytest.mark.parametrize(
    ("files", "importers", "hubs"), [(60, 14, 0), (60, 15, 1), (20, 4, 0), (20, 5, 1), (19, 18, 0)]
)
def test_a_hub_is_imported_by_five_files_and_a_quarter_of_the_others(files, importers, hubs):
    paths = flat(files)
    plan = decompose(
        Inventory.of(paths), Imports.of({path: [paths[-1]] for path in paths[:importers]})
    )
    assert sum(node.kind is NodeKind.HUBS for node in plan.nodes) == hubs


def test_a_hub_above_the_budget_has_its_own_writer_too():
    paths = flat(12)
    plan = decompose(
        Inventory.of(paths),
        Imports.of({path: [paths[3]] for path in paths if path != paths[3]}),
        Options(max_files=11),
    )
    assert [(node.kind, len(node.files)) for node in plan.leaves] == [
        (NodeKind.HUBS, 1),
        (NodeKind.CLUSTER, 11),
    ]
    assert plan.root.reason is Reason.IMPORTS


def test_above_a_budget_imports_come_before_names_and_communities_between():
    left, right = flat(20)[::2], flat(20)[1::2]
    plan = decompose(
        Inventory.of(flat(20)), Imports.of({**clique(left), **clique(right)}), Options(max_files=10)
    )
    assert plan.root.reason is Reason.IMPORTS
    assert [list(leaf.files) for leaf in plan.leaves] == [left, right]
    joined = Imports.of({**clique(left), **clique(right), left[-1]: [right[0]]})
    plan = decompose(Inventory.of(flat(20)), joined, Options(max_files=10))
    assert plan.root.reason is Reason.COMMUNITIES
    pair = Imports.of({"d/f00000.py": ["d/f00001.py"]})
    plan = decompose(Inventory.of(dict.fromkeys(flat(2), 9)), pair, Options(max_tokens=10))
    assert (plan.root.reason, len(plan.leaves)) == (Reason.NAMES, 2)


def test_a_directory_with_few_neighbours_is_no_level_but_one_with_many_is():
    near = plan_of({"": 20, "a/x": 30, "a/y": 30})
    assert [node.scope for node in near.children(near.root)] == ["*", "a/x/", "a/y/"]
    far = plan_of({"": 21, "a/x": 30, "a/y": 30})
    assert [node.scope for node in far.children(far.root)] == ["*", "a/"]
    assert {node.id for node in near.nodes} <= {node.id for node in far.nodes}
