"""Parts as people write them: what they divide, what is refused, and the file that holds them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abreast.jobs.files.problems import Problems
from abreast.jobs.files.yaml_nodes import read_yaml
from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.inventory import Inventory
from abreast.jobs.plan.errors import PlanInvalid
from abreast.jobs.plan.spec import Options
from abreast.jobs.plan.work.ownership import NO_PART, Ownership
from abreast.jobs.plan.written.division import plan_of_parts, written_needs
from abreast.jobs.plan.written.parts import read_parts
from abreast.jobs.plan.written.plan_file import PlanFile
from tests.jobs.plan import trees

FILES = Inventory.of(
    {
        "README.md": 3,
        "a/one.py": 5,
        "a/two.py": 7,
        "a/deep/x.py": 11,
        "a/deep/x_test.py": 13,
        "b/b.py": 17,
    }
)


def parts_of(text, file="plan.yaml"):
    node = read_yaml(text, Problems(file))
    return read_parts(node, file)


def divided(text, **options):
    parts = parts_of(text)
    plan = plan_of_parts(FILES, parts, **options)
    return plan, {leaf.scope: " ".join(leaf.files) for leaf in plan.leaves}


def test_a_name_counts_more_than_a_pattern_and_a_pattern_more_than_a_directory():
    plan, files = divided(
        """
- {name: all, files: [./]}
- {name: tests, files: ["*_test.py"]}
- {name: deep, files: [a/deep/], after: [all, tests]}
- {name: one, id: uno, files: [a/one.py], instructions: "Keep it."}
"""
    )
    assert files == {
        "all": "README.md a/two.py b/b.py",
        "tests": "a/deep/x_test.py",
        "deep": "a/deep/x.py",
        "one": "a/one.py",
    }
    assert [leaf.tokens for leaf in plan.leaves] == [27, 13, 11, 5]
    assert plan.node("uno").instructions == "Keep it."
    assert plan.root.files == FILES.paths
    ids = [leaf.id for leaf in plan.leaves]
    parts = parts_of("[{name: x, files: [a/], after: [y]}, {name: y, files: [b/]}]")
    plan = plan_of_parts(FILES, parts)
    assert written_needs(plan, parts) == {parts[0].id: (parts[1].id,), parts[1].id: ()}
    assert len(set(ids)) == 4


def test_files_in_no_part_are_said_and_belong_to_none():
    plan, _ = divided("[{name: a, files: [a/]}, {name: b, files: [b/b.py]}]")
    assert plan.left_out == ("README.md",)
    assert any("in no part" in note and "README.md" in note for note in plan.notes)
    rules = Ownership.of(plan)
    assert rules.owners("README.md") == (NO_PART,)
    alone, _ = divided("[{name: a, files: [./]}]")
    assert [node.id for node in alone.nodes] == [alone.leaves[0].id]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "- {name: x, files: [a/one.py]}\n- {name: y, files: [a/one.py]}",
            "2: a/one.py comes twice",
        ),
        ("- {name: x, files: [a/]}\n- {name: y, files: [b/, a]}", "2: a comes twice"),
        ('- {name: x, files: ["*.py"]}\n- {name: y, files: ["a/*"]}', "2: a/deep/x.py comes twice"),
        ("- {name: x, files:\n  [a/one.py,\n  a/tow.py]}", "3: there is no file 'a/tow.py'"),
        ('- {name: x, files: ["*.rs"]}', "1: no file is like '*.rs'"),
        ('- {name: x, files: ["!*.py"]}', "1: '!*.py': patterns are not negated"),
        ("- {name: x, files: [a/], after: [z]}", "1: there is no part 'z'"),
        ("- {name: x, files: [a/]}\n- {name: x, files: [b/]}", "comes twice"),
        (
            "- {name: x, files: [a/], after: [y]}\n- {name: y, files: [b/], after: [x]}",
            "1: parts wait for each other in a circle",
        ),
        ("- {name: x}", "1: part 'x' has no files"),
        ("- {files: [a/]}", "1: a part needs a name"),
        ("- {name: x, file: [a/]}", "1: a part has no 'file'; did you mean files?"),
        ("- {name: x, id: source, files: [a/]}", "1: id 'source' can't be used"),
        ("- {name: x, id: a/b, files: [a/]}", "1: id 'a/b' can't be used"),
        ("- 7", "1: a part must be a mapping"),
        ("{}", "1: parts must be a list"),
        (
            "- {name: x, files: [a/one.py, a/two.py, a/deep/]}\n- {name: y, files: [a/]}",
            "has no files",
        ),
        ("- {name: x, files: {a: b}}", "1: files must be a list of texts"),
    ],
)
def test_a_wrong_edit_is_one_sentence_with_its_line(text, said):
    with pytest.raises(PlanInvalid) as error:
        divided(text)
    assert str(error.value).startswith("plan.yaml:")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_goes_on_although_files_of_its_parts_are_gone():
    parts = read_parts(
        [{"name": "a", "files": ["a/one.py", "gone.py"]}, {"name": "b", "files": ["z"]}]
    )
    plan = plan_of_parts(FILES, parts, strict=False)
    assert [leaf.files for leaf in plan.leaves] == [("a/one.py",)]
    assert any("gone.py" in note for note in plan.notes)


def test_a_written_plan_is_read_as_the_same_plan():
    files = Inventory.of(
        [f"src/{part}/m{number}.py" for part in "abc" for number in range(5)]
        + ["top.py", "no", "odd name: [x].py", "src/a/*.txt", "7", "\udce9.py"]
    )
    plan = decompose(files, None, Options(min_files=2))
    text = PlanFile.of(
        plan, {"path": ".", "exclude": None}, {plan.leaves[1].id: [plan.leaves[0].id]}
    ).text()
    node = read_yaml(text, report := Problems("plan.yaml"))
    assert not report.problems
    parts = read_parts(node.get("plan").get("parts"), "plan.yaml")
    again = plan_of_parts(files, parts)
    assert [(leaf.id, leaf.files) for leaf in again.leaves] == [
        (leaf.id, leaf.files) for leaf in plan.leaves
    ]
    assert written_needs(again, parts)[plan.leaves[1].id] == (plan.leaves[0].id,)
    assert not again.left_out
    assert PlanFile.of(again, {"path": "."}, written_needs(again, parts)).text() == text


def test_parts_are_a_tree_by_their_directories_and_stay_in_their_order():
    plan, files = divided(
        """
- {name: deep tests, files: [a/deep/x_test.py]}
- {name: b, files: [b/]}
- {name: deep, files: [a/deep/]}
- {name: a, files: [a/]}
- {name: rest, files: [README.md]}
"""
    )
    assert [*files] == ["deep tests", "b", "deep", "a", "rest"]
    tree = {
        node.scope: [plan.node(child).scope for child in node.children]
        for node in plan.nodes
        if node.children
    }
    assert tree == {
        "./": ["a/", "b", "rest"],
        "a/": ["a/deep/", "a"],
        "a/deep/": ["deep tests", "deep"],
    }
    assert plan.max_depth_reached == 3


@given(trees.layouts, st.randoms(use_true_random=False), st.integers(1, 12))
def test_any_parts_make_a_sound_tree(layout, drawn, count):
    paths = trees.paths_of(layout)
    owners = [drawn.randrange(count) for _ in paths]
    given_parts = [
        {
            "name": f"part {number}",
            "files": [path for path, owner in zip(paths, owners, strict=True) if owner == number],
        }
        for number in sorted(set(owners), key=lambda _: drawn.random())
    ]
    inventory = trees.weighed(paths)
    plan = plan_of_parts(inventory, read_parts(given_parts))
    assert [leaf.scope for leaf in plan.leaves] == [part["name"] for part in given_parts]
    seen = {}
    for node in plan.nodes:
        if node.parent is not None:
            assert seen[node.parent].depth == node.depth - 1
            assert node.id in seen[node.parent].children
        seen[node.id] = node
    for node in plan.nodes:
        children = [*plan.children(node)]
        assert len(children) != 1
        if children:
            assert sorted(path for child in children for path in child.files) == list(node.files)
            assert all(len(child.files) < len(node.files) for child in children)
    assert plan.root.files == tuple(paths)
