"""A plan as JSON and as a tree in the terminal."""

import json
from io import StringIO

from rich.console import Console

from abreast.jobs.plan.decompose.decompose import decompose
from abreast.jobs.plan.decompose.imports import Imports
from abreast.jobs.plan.decompose.inventory import FileEntry, Inventory
from abreast.jobs.plan.decompose.score import score
from abreast.jobs.plan.spec import Options
from abreast.jobs.plan.tree_text import show, to_json
from tests.jobs.plan.trees import assert_sound, edges_of, large_layout, weighed


def printed(*what, **options):
    console = Console(width=200, color_system=None, file=StringIO())
    console.print(show(*what, **options))
    return console.file.getvalue()


def test_json_has_exactly_the_fields_that_are_documented_and_can_be_read_back():
    paths = [*large_layout(), "odd/\udcff\n.py"]
    imports = edges_of(sorted(paths), [(13 * n, 29 * n) for n in range(500)])
    plan = decompose(weighed(paths), imports, Options(max_files=100))
    found = json.loads(json.dumps(to_json(plan, score(plan, imports))))
    assert list(found) == ["root", "nodes", "max_depth_reached", "score"]
    fields = ["id", "parent", "children", "depth", "files", "tokens", "reason", "over_budget"]
    assert all(list(node) == fields for node in found["nodes"])
    assert found["root"] == found["nodes"][0]["id"]
    assert found["max_depth_reached"] == max(node["depth"] for node in found["nodes"])
    leaves = [path for node in found["nodes"] if not node["children"] for path in node["files"]]
    assert sorted(leaves) == sorted(paths)
    assert {"cut_ratio", "hubs", "conflict_pairs", "tokens", "critical_path", "speedup"} <= set(
        found["score"]
    )
    assert found["score"]["speedup"][9]["max_parallel"] == 10
    assert to_json(plan)["score"] is None
    assert_sound(plan, weighed(paths))


def test_the_picture_says_where_how_many_and_why():
    files = [f"src/{name}/{number}.py" for name in ("core", "web") for number in range(30)] + [
        "README.md"
    ]
    edges = {f"src/core/{number}.py": ["src/core/0.py", "src/web/1.py"] for number in range(1, 30)}
    inventory = Inventory(
        tuple(FileEntry(path, tokens=3) for path in files), notes=("2 files are left out",)
    )
    plan = decompose(inventory, Imports(Imports.of(edges).edges, (("x.py", "line 1: no"),)))
    text = printed(plan, score(plan, Imports.of(edges)))
    assert "./  61 files, 183 tokens  by directories" in text
    assert "README.md" not in text
    assert "*  1 file, 3 tokens  few files" in text
    assert "src/core/{0.py}  hubs  1 file" in text
    assert "nothing divides it" in text
    assert "note: 2 files are left out" in text
    assert "note: the imports of x.py can't be read: line 1: no" in text
    assert "may conflict: " in text
    assert "imports that lead from one subplan to another" in text
    assert plan.leaves[0].id not in text
    assert plan.leaves[0].id in printed(plan, ids=True)


def test_what_is_above_the_budget_is_marked_and_long_lists_are_cut():
    files = {f"{folder}/x.py": 50 for folder in "abcdefgh"}
    imports = Imports.of({path: sorted(set(files) - {path}) for path in files})
    plan = decompose(Inventory.of(files), imports, Options(max_tokens=10))
    text = printed(plan, score(plan, imports, widths=[3]))
    assert text.count("over budget") == 8
    assert "  and 3 more" in text
    assert "circle of 8 subplans" in text
    assert "times faster" not in text


def test_a_name_can_t_move_the_cursor():
    plan = decompose(Inventory.of([f"a\x1b[2J\n/{number}" for number in range(20)] + ["b/1"]))
    text = printed(plan)
    assert "\x1b" not in text
    assert "a\\x1b[2J\\n/" in text
