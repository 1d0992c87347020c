"""Parts within bounds of tokens: sound, within their bounds, and where few imports are cut."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.decompose.score import score
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import NodeKind, Options
from tests.jobs.plan.trees import assert_sound, edges_of, layouts, pairs, paths_of

BOUNDS = Options(max_tokens=1_000, min_tokens=100)


def sized(paths, drawn=None):
    drawn = drawn or random.Random(3)
    return Inventory.of({path: drawn.randint(10, 300) for path in paths})


def package(name, files, drawn):
    """Files that import each other."""
    paths = [f"{name}/{number:02}.py" for number in range(files)]
    return {path: drawn.sample(paths, 4) for path in paths}


@given(layout=layouts, numbers=pairs, high=st.integers(60, 3_000))
def test_every_file_is_in_one_part_and_only_one_file_alone_is_above_the_bound(
    layout, numbers, high
):
    paths = paths_of(layout)
    inventory, imports = sized(paths), edges_of(paths, numbers)
    plan = decompose(inventory, imports, Options(max_tokens=high, min_tokens=high // 10))
    assert_sound(plan, inventory)
    for leaf in plan.leaves:
        assert leaf.over_budget == (leaf.tokens > high)
        assert not leaf.over_budget or len(leaf.files) == 1


@given(layout=layouts, numbers=pairs, seed=st.integers(0, 99))
def test_any_order_of_files_and_edges_gives_the_same_parts(layout, numbers, seed):
    paths = paths_of(layout)
    inventory, imports = sized(paths), edges_of(paths, numbers)
    plan = decompose(inventory, imports, BOUNDS)
    shuffled = [*inventory.files]
    random.Random(seed).shuffle(shuffled)
    turned = Imports(dict(reversed([*imports.edges.items()])))
    assert decompose(Inventory(tuple(shuffled)), turned, BOUNDS) == plan


def test_what_imports_each_other_is_one_part_wherever_it_lies():
    """Two groups whose files lie in each other's directories."""
    one = {f"{folder}/one{number}.py": [] for number in range(6) for folder in "ab"}
    two = {f"{folder}/two{number}.py": [] for number in range(6) for folder in "ab"}
    edges = {
        path: [other for other in group if other != path] for group in (one, two) for path in group
    }
    inventory = Inventory.of(dict.fromkeys(edges, 80))
    plan = decompose(inventory, Imports.of(edges), BOUNDS)
    assert sorted(leaf.files for leaf in plan.leaves) == [tuple(sorted(one)), tuple(sorted(two))]
    assert score(plan, Imports.of(edges)).cut_ratio == 0


def test_a_test_is_with_its_source():
    drawn = random.Random(5)
    edges = {}
    for name in ("cart", "mail", "stock"):
        edges |= package(f"shop/{name}", 6, drawn)
    tests = {
        path.replace("shop/", "tests/").replace("/", "/test_", 2).replace("/test_", "/", 1): path
        for path in edges
    }
    inventory = Inventory.of(dict.fromkeys([*edges, *tests], 70))
    plan = decompose(inventory, Imports.of(edges), BOUNDS)
    assert all(plan.owner(test) == plan.owner(source) for test, source in tests.items())


def test_small_parts_are_combined_and_none_is_below_the_bound():
    inventory = Inventory.of({f"notes/{number:03}.txt": 7 for number in range(300)})
    plan = decompose(inventory, None, BOUNDS)
    assert all(100 <= leaf.tokens <= 1_000 for leaf in plan.leaves)
    assert len(plan.leaves) <= 5


def test_no_part_has_more_files_than_it_may():
    inventory = Inventory.of({f"notes/{number:03}.txt": 1 for number in range(100)})
    options = Options(max_tokens=1_000, min_tokens=0, max_files=9)
    assert max(len(leaf.files) for leaf in decompose(inventory, None, options).leaves) <= 9


def test_a_small_edit_leaves_most_parts_as_they_were():
    drawn = random.Random(8)
    edges = {}
    for number in range(12):
        edges |= package(f"app/p{number}", 10, drawn)
    inventory = Inventory.of(dict.fromkeys(edges, 90))
    before = decompose(inventory, Imports.of(edges), BOUNDS)
    changed = {**edges, "app/p3/99.py": ["app/p3/01.py"], "app/p7/02.py": ["app/p3/02.py"]}
    after = decompose(Inventory.of(dict.fromkeys(changed, 90)), Imports.of(changed), BOUNDS)
    same = {leaf.id for leaf in before.leaves} & {leaf.id for leaf in after.leaves}
    assert len(same) >= len(before.leaves) - 2


def test_inner_nodes_are_directories_with_several_parts_and_names_say_what_is_in_a_part():
    drawn = random.Random(2)
    edges = {}
    for name in ("web", "db"):
        for number in range(3):
            edges |= package(f"src/{name}/p{number}", 8, drawn)
    plan = decompose(Inventory.of(dict.fromkeys(edges, 100)), Imports.of(edges), BOUNDS)
    inner = [node for node in plan.nodes if node.children and node.parent is not None]
    assert [(node.kind, node.scope) for node in inner] == [
        (NodeKind.GROUP, "src/db/"),
        (NodeKind.GROUP, "src/web/"),
    ]
    assert {leaf.scope for leaf in plan.leaves} == {
        f"src/{name}/p{number}/" for name in ("web", "db") for number in range(3)
    }
    deepest = decompose(
        Inventory.of(dict.fromkeys(edges, 100)),
        Imports.of(edges),
        Options(max_depth=1, max_tokens=1_000, min_tokens=100),
    )
    assert {leaf.depth for leaf in deepest.leaves} == {1}


def test_without_files_or_depth_the_root_is_a_leaf():
    for paths in ([], ["a.py", "b.py"]):
        inventory = Inventory.of(dict.fromkeys(paths, 900))
        plan = decompose(inventory, None, Options(max_depth=0, max_tokens=1_000, min_tokens=0))
        assert_sound(plan, inventory)


def test_bounds_that_leave_no_room_are_refused():
    with pytest.raises(PlanInvalid, match="at least twice as large"):
        Options(min_tokens=600, max_tokens=1_000)
    with pytest.raises(PlanInvalid, match="at least twice as large"):
        Options(min_tokens=600)
