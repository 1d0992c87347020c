"""`abreast plan` with Python functions and models, and the gate before a merge is written."""

import asyncio
import json
import re
import sys

import pytest

from abreast.testing.storm import open_storm
from tests.cli.commands.test_plan import project

__all__ = ["project"]

CODEMOD = '''
"""A codemod: every name `x` becomes another, as the instruction says."""
import os, re, sys
from pathlib import Path


def rename(subplan):
    assert Path.cwd() == subplan.path
    changed = 0
    for place in subplan.places:
        if place.suffix == ".py":
            text = place.read_text()
            place.write_text(re.sub(r"\\bx\\b", subplan.instruction, text))
            changed += text != place.read_text()
    print("changed", changed, "of", subplan.scope)
    return {"changed": changed}


async def later(subplan):
    return rename(subplan)


def fails(subplan):
    (subplan.path / subplan.files[0]).write_text("half\\n")
    if "beta" in subplan.scope:
        raise ValueError("no beta today")


def dies(subplan):
    os._exit(3)


NOTHING = 7
'''


@pytest.mark.parametrize("function", ["rename", "later"])
def test_a_python_function_gets_the_subplan_and_works_in_its_worktree(project, function):
    project.file("codemods.py", CODEMOD)
    said = project(
        "plan",
        "run",
        "src",
        "--call",
        f"codemods:{function}",
        "--prompt",
        "renamed",
        "-w",
        "4",
        "--json",
    )
    assert said.code == 0, said
    found = json.loads(said.out)
    assert [one["value"]["value"] for one in found["subplans"]] == [{"changed": 6}] * 4
    assert found["subplans"][0]["value"]["stdout"] == "changed 6 of alpha/\n"
    assert (project.folder / "src/beta/m3.py").read_text() == "x = 3\n"
    said = project("plan", "apply", "plan")
    assert said.code == 0, said
    assert (project.folder / "src/beta/m3.py").read_text() == "renamed = 3\n"
    assert (project.folder / "src/alpha/m0.py").read_text() == "renamed = 0\ny = 1\n"


def test_what_a_function_raises_is_its_error_and_what_it_had_done_is_kept(project):
    project.file("codemods.py", CODEMOD)
    found = json.loads(project("plan", "run", "src", "--call", "codemods:fails", "--json").out)
    assert {one["leaf"][:5]: one["error"] for one in found["subplans"]} == {
        "alpha": None,
        "beta-": "ValueError: no beta today",
        "delta": None,
        "gamma": None,
    }
    kept = project.git(
        "--git-dir", "src/.abreast/plan.git", "for-each-ref", "--format=%(refname)"
    ).split()
    assert [name.split("/")[3][:4] for name in kept if "/failed-" in name] == ["beta"]
    tree = next(name for name in kept if "/failed-" in name)
    assert (
        project.git("--git-dir", "src/.abreast/plan.git", "show", f"{tree}:beta/m0.py") == "half\n"
    )


def test_a_path_of_python_that_is_relative_is_so_to_where_it_was_asked(project):
    project.file("tools/codemods.py", CODEMOD)
    path = f"tools:{project.environment['PYTHONPATH']}"
    said = project(
        "plan",
        "run",
        "src",
        "--call",
        "codemods:rename",
        "--prompt",
        "y",
        "--quiet",
        PYTHONPATH=path,
    )
    assert said.code == 0, said


def test_what_a_function_returns_must_be_json(project):
    project.file("codemods.py", "def numbers(subplan):\n    return {1, 2}\n")
    found = json.loads(project("plan", "run", "src", "--call", "codemods:numbers", "--json").out)
    assert {one["error"] for one in found["subplans"]} == {
        "TypeError: Object of type set is not JSON serializable"
    }


def test_a_function_whose_process_dies_or_that_is_none_says_so(project):
    project.file("codemods.py", CODEMOD)
    found = json.loads(project("plan", "run", "src", "--call", "codemods:dies", "--json").out)
    assert {one["error"] for one in found["subplans"]} == {"its process ended with 3"}
    assert "codemods has no 'nope'" in project("plan", "run", "--call", "codemods:nope").err
    assert "not a function, but int" in project("plan", "run", "--call", "codemods:NOTHING").err


def editor(prompt):
    """A model that puts the line of its instruction before each file that it is shown."""
    wanted = prompt.split("\n", 1)[0]
    found = re.findall(r"^=== (\w+) FILE (.+)\n((?:.*\n)*?)=== \1 END", prompt, re.MULTILINE)
    python = [(mark, path, text) for mark, path, text in found if path.endswith(".py")]
    return "".join(
        f"=== {mark} FILE {path}\n{wanted}\n{text}=== {mark} END\n" for mark, path, text in python
    ) or ("NOTHING TO CHANGE")


async def test_a_model_edits_the_files_of_each_subplan_over_http(project):
    async with open_storm(script=editor) as storm:
        project.file("abreast.toml", f'[lanes.storm]\nbase_url = "{storm.url}/v1"\nwidth = 2\n')
        asked = (
            "plan",
            "run",
            "src",
            "-m",
            "storm/model",
            "--prompt",
            "# by a model",
            "-w",
            "4",
            "--json",
        )
        said = await asyncio.to_thread(project, *asked)
        assert said.code == 0, said
        assert [one["value"]["replies"] for one in json.loads(said.out)["subplans"]] == [1] * 4
        assert storm.stats().arrived == 4
    assert project("plan", "apply", "plan").code == 0
    assert (project.folder / "src/gamma/m5.py").read_text() == "# by a model\nx = 5\n"


async def test_a_model_that_breaks_the_rules_fails_its_subplan_alone(project):
    def wild(prompt):
        if prompt.startswith("Nothing of that was written"):
            return "But why?"
        said = editor(prompt)
        return said.replace("alpha/m1.py", "beta/m1.py") if "alpha/m1.py" in said else said

    async with open_storm(script=wild) as storm:
        project.file("abreast.toml", f'[lanes.storm]\nbase_url = "{storm.url}/v1"\n')
        asked = (
            "plan",
            "run",
            "src",
            "-m",
            "storm/model",
            "--prompt",
            "# x",
            "--repairs",
            "1",
            "--json",
        )
        said = await asyncio.to_thread(project, *asked)
        assert storm.stats().arrived == 5
    assert said.code == 1
    errors = [one["error"] for one in json.loads(said.out)["subplans"]]
    assert errors == [
        (
            "there is no file in the reply, in the form that was asked for, "
            "nor NOTHING TO CHANGE (after 2 replies)"
        ),
        None,
        None,
        None,
    ]


BREAK = """
case $ABREAST_SUBPLAN in
  alpha*) sed -i s/x/first/ alpha/m1.py;;
  beta*) echo 'from alpha.m1 import x' > beta/m2.py;;
esac
"""


def test_the_gate_stops_a_merge_that_breaks_an_import_and_names_the_pair(project):
    for folder in ("alpha", "beta", "delta", "gamma"):
        project.file(f"src/{folder}/__init__.py", "")
    assert project("plan", "run", "src", "--command", BREAK).code == 0
    said = project("plan", "apply", "plan", "--json")
    assert said.code == 1
    (line,) = json.loads(said.out)["blocked"]
    assert line.startswith("beta/m2.py: imports x from alpha.m1, which doesn't have it, by alpha-")
    assert " and beta-" in line
    assert (project.folder / "src/alpha/m1.py").read_text() == "x = 1\n"
    assert project("plan", "apply", "plan", "--no-gate").code == 0
    assert (project.folder / "src/alpha/m1.py").read_text() == "first = 1\n"


def test_a_check_of_the_users_own_stops_a_merge(project):
    command = "case $ABREAST_SUBPLAN in alpha*|beta*) touch $ABREAST_SCOPE/flag.py;; esac"
    check = "! { test -e alpha/flag.py && test -e beta/flag.py; }"
    assert project("plan", "run", "src", "--command", command, "--check", check).code == 0
    said = project("plan", "apply", "plan")
    assert said.code == 1
    assert re.search(r"fails \(exit code 1\), by alpha-\w+ and beta-\w+ together", said.out), said
    assert (
        project("plan", "apply", "plan", "--check", f"{sys.executable} -c 1", "--dry-run").code == 0
    )
    assert not (project.folder / "src/alpha/flag.py").exists()
    assert len(project.git("worktree", "list").splitlines()) == 1


def test_what_was_applied_is_let_go_of_and_nothing_else(project):
    command = (
        "case $ABREAST_SUBPLAN in beta*) echo x >> beta/m1.py; exit 1;; "
        "*) echo y >> $ABREAST_SCOPE/m1.py;; esac"
    )
    assert project("plan", "run", "src", "--command", command).code == 1

    def kept():
        names = project.git(
            "--git-dir", "src/.abreast/plan.git", "for-each-ref", "--format=%(refname)"
        ).split()
        return sorted(
            (name.split("/")[3].split("-")[0], name.split("/")[4].split("-")[0]) for name in names
        )

    assert kept() == [("alpha", "done"), ("beta", "failed"), ("delta", "done"), ("gamma", "done")]
    said = project("plan", "apply", "plan", "--partial")
    assert said.code == 0, said
    assert "1 of 4 subplans are not done, and left out" in said.err
    assert kept() == [("beta", "failed")]
    assert project("plan", "apply", "plan", "--partial").code == 0  # and once more changes nothing
