"""`abreast plan show` on this repository and on packages of about 50, 500 and 2,000 files."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from abreast.jobs.plan.spec import LEAF_REASONS

HERE = Path(__file__).parents[2]
PACKAGES = {"importlinter": (30, 120), "sphinx": (400, 900), "pandas": (1200, 2500)}


def shown(path, *options, cwd=None, seed="0"):
    """What it prints, as bytes and as JSON."""
    argv = [sys.executable, "-P", "-m", "abreast", "plan", "show", str(path), "--all-files"]
    argv += ["--json", *options]
    env = {**os.environ, "PYTHONHASHSEED": seed}
    printed = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, check=True).stdout
    return printed, json.loads(printed)


def assert_exact(found):
    """Links, depths and files of what was printed."""
    nodes = {node["id"]: node for node in found["nodes"]}
    root = nodes[found["root"]]
    assert sorted(child for node in nodes.values() for child in node["children"]) == sorted(
        set(nodes) - {root["id"]}
    )
    for node in nodes.values():
        children = [nodes[child] for child in node["children"]]
        assert (node["reason"] in {str(reason) for reason in LEAF_REASONS}) == (not children)
        assert all(
            child["parent"] == node["id"] and child["depth"] == node["depth"] + 1
            for child in children
        )
        if children:
            assert len(children) >= 2
            assert all(0 < len(child["files"]) < len(node["files"]) for child in children)
            assert sorted(file for child in children for file in child["files"]) == node["files"]
    leaves = [node for node in nodes.values() if not node["children"]]
    assert sorted(file for leaf in leaves for file in leaf["files"]) == root["files"]
    assert found["max_depth_reached"] == max(node["depth"] for node in leaves)


def files_of(place):
    return sorted(
        path.relative_to(place).as_posix()
        for path in place.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_is_divided_exactly_and_alike_from_any_place_and_hash_seed(
    name, tmp_path, unmeasured
):
    place = Path(find_spec(name).origin).parent
    printed, found = shown(place)
    assert_exact(found)
    files = found["nodes"][0]["files"]
    assert files == files_of(place)
    low, high = PACKAGES[name]
    assert low <= len(files) <= high
    assert len([node for node in found["nodes"] if not node["children"]]) > 1
    if name != "pandas":  # which would take minutes to copy and to read so often
        assert shown(".", cwd=place, seed="1")[0] == printed
        shutil.copytree(
            place, tmp_path / "another name", ignore=shutil.ignore_patterns("__pycache__")
        )
        assert shown("another name", cwd=tmp_path, seed="4242")[0] == printed


def test_this_repository_is_divided_exactly(unmeasured):
    if not (HERE / ".git").exists():
        pytest.skip("no git repository: an archive of it")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=HERE, capture_output=True, check=True
    ).stdout
    there = [name for name in listed.decode().split("\0") if name and (HERE / name).exists()]
    by_folders = ("--min-files", "10")
    for options in ((), by_folders):
        found = shown(HERE, *options)[1]
        assert_exact(found)
        assert found["nodes"][0]["files"] == sorted(there)
        assert found["max_depth_reached"] >= (4 if options == by_folders else 2)


def test_a_tree_that_goes_into_a_file_is_not_cut_at_the_width_of_a_terminal(abreast):
    folder = "a_long_name_of_a_directory_" * 5
    for number in range(3):
        abreast.file(f"{folder}/m{number}.py", "")
        abreast.file(f"other/m{number}.py", "")
    out = abreast("plan", "show", "--min-files", "3").out
    assert f"{folder}/  3 files, 0 tokens  few files\n" in out
