"""Layouts of files, what every plan of them obeys, and a realistic large one."""

import random

from hypothesis import strategies as st

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.spec import LEAF_REASONS, NodeKind, Options, Reason

NAMES = ("a", "b", "c", "d")
folders = st.lists(st.sampled_from(NAMES), max_size=4).map("/".join)
layouts = st.dictionaries(folders, st.integers(1, 45), min_size=1, max_size=10)
pairs = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), max_size=60)
budgets = st.builds(
    Options,
    max_depth=st.sampled_from([0, 1, 2, 8]),
    min_files=st.sampled_from([1, 3, 10]),
    max_files=st.none() | st.integers(1, 30),
    max_tokens=st.none() | st.integers(1, 300),
)


def paths_of(layout):
    return sorted(
        f"{folder}/f{number:02}.py" if folder else f"f{number:02}.py"
        for folder, count in layout.items()
        for number in range(count)
    )


def edges_of(paths, numbers):
    """Imports between files; every second one is of a file of the same directory."""
    edges = {}
    by_folder = {}
    for path in paths:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    for place, (one, two) in enumerate(numbers):
        source = paths[one % len(paths)]
        near = by_folder[source.rpartition("/")[0]] if place % 2 else paths
        edges.setdefault(source, []).append(near[two % len(near)])
    return Imports.of(edges)


def weighed(paths):
    return Inventory.of({path: (7 * place) % 23 for place, path in enumerate(paths)})


def plan_of(layout, numbers=(), options=None):
    paths = paths_of(layout)
    return decompose(weighed(paths), edges_of(paths, numbers), options)


def assert_sound(plan, inventory):
    """Every structural line of the specification."""
    options = plan.options
    tokens = {file.path: file.tokens for file in inventory.files}
    by_id = {node.id: node for node in plan.nodes}
    assert len(by_id) == len(plan.nodes)
    assert plan.nodes[0].parent is None
    assert plan.nodes[0].files == inventory.paths
    listed = [child for node in plan.nodes for child in node.children]
    assert sorted(listed) == sorted(set(by_id) - {plan.nodes[0].id})  # each in exactly one list
    for node in plan.nodes:
        assert list(node.files) == sorted(node.files)
        assert node.tokens == sum(tokens[path] for path in node.files)
        assert (node.reason in LEAF_REASONS) == (not node.children)
        children = [by_id[child] for child in node.children]
        for child in children:
            assert child.parent == node.id
            assert child.depth == node.depth + 1
            assert 0 < len(child.files) < len(node.files)
        if children:
            assert len(children) >= 2
            assert sorted(path for child in children for path in child.files) == list(node.files)
        else:
            assert_reasoned(node, options)
    leaves = [path for node in plan.nodes if not node.children for path in node.files]
    assert sorted(leaves) == list(inventory.paths)


def assert_reasoned(leaf, options):
    over = options.over(len(leaf.files), leaf.tokens)
    assert leaf.over_budget == over
    assert leaf.depth <= options.max_depth
    if leaf.reason is Reason.MIN_FILES:
        assert len(leaf.files) <= options.min_files
        assert not over
    elif leaf.reason is Reason.FITS:
        assert options.budgeted
        assert not over
    elif leaf.reason is Reason.MAX_DEPTH:
        assert leaf.depth == options.max_depth
    else:
        assert leaf.reason is Reason.NO_PROGRESS


def elsewhere(node, path):
    """Whether a path is not where the files of a node are."""
    folder = path.rpartition("/")[0]
    if node.kind is NodeKind.DIRECTORY:
        place = node.scope.rstrip("/")
        return place not in {".", folder} and not folder.startswith(f"{place}/")
    return folder != node.files[0].rpartition("/")[0]


def large_layout():
    """2,600 files of a monorepo: services of layered packages, tests, a web page, documents."""
    drawn = random.Random(20261115)
    found = ["README.md", "LICENSE", "pyproject.toml", "Makefile", ".gitignore"]
    for service in ("billing", "catalogue", "identity", "orders", "search", "shipping"):
        for layer in ("api", "domain", "storage", "workers"):
            for part in ("accounts", "events", "rules", "reports"):
                within = f"src/company/{service}/{layer}/{part}"
                found.append(f"{within}/__init__.py")
                found += [f"{within}/{part}_{number}.py" for number in range(drawn.randint(6, 14))]
                if layer == "domain":
                    found += [
                        f"{within}/policies/policy_{number}.py"
                        for number in range(drawn.randint(4, 12))
                    ]
            found += [
                f"tests/{service}/{layer}/test_{number}.py"
                for number in range(drawn.randint(8, 25))
            ]
        found += [f"src/company/{service}/{name}.py" for name in ("__init__", "main", "settings")]
        found += [
            f"migrations/{service}/{number:04}.sql" for number in range(drawn.randint(10, 30))
        ]
    for page in ("basket", "checkout", "login", "profile", "search"):
        for kind in ("components", "hooks", "styles"):
            found += [
                f"web/src/pages/{page}/{kind}/{kind}{number}.tsx"
                for number in range(drawn.randint(5, 20))
            ]
    found += [
        f"docs/{area}/{number}.md" for area in ("guide", "reference", "adr") for number in range(30)
    ]
    return found
