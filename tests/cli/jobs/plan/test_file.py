"""`plan:` job files: the same as by flags, checked with their lines, shown before they run."""

import json
from contextlib import nullcontext

import jsonschema_rs
import pytest

from tests.cli.commands.test_plan import MARK, project

__all__ = ["project"]

FILE = f"""
plan:
  path: src
  command: |
    {MARK}
  width: 2
  timeout: 5min
  check: "! grep -rq wrong ."
"""


def test_a_file_runs_as_its_flags_would_and_is_resumed_and_applied(project):
    project.file("plan.yaml", FILE)
    said = project("run", "plan.yaml", "--json")
    assert said.code == 0, said
    found = json.loads(said.out)
    assert (found["run"], len(found["subplans"]), found["peak"]) == ("plan-1", 4, 2)
    assert "plan-1 is done" in project("resume", "plan-1").err
    assert project("plan", "apply", "plan-1").code == 0
    assert (project.folder / "src/beta/m3.py").read_text() == "x = 3\n# seen\n"


def test_its_check_is_kept_for_the_merge(project):
    project.file("plan.yaml", FILE.replace("# seen", "# wrong"))
    assert project("run", "plan.yaml", "--name", "bad").code == 0
    said = project("plan", "apply", "bad")
    assert said.code == 1
    assert "! grep -rq wrong ." in said.out
    assert (project.folder / "src/beta/m3.py").read_text() == "x = 3\n"


def test_it_is_shown_and_checked_without_running(project):
    project.file("plan.yaml", FILE)
    assert (
        project("run", "plan.yaml", "--dry-run", "--json").out
        == project("plan", "show", "src", "--json").out
    )
    assert "6 files" in project("run", "plan.yaml", "--dry-run").out
    assert project("run", "plan.yaml", "--check").code == 0
    assert json.loads(project("run", "plan.yaml", "--check", "--json").out)["ok"] is True
    assert not project.store.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plan: 7\n", "plan.yaml:1: plan must be a mapping"),
        (
            "plan:\n  width: 2\n",
            "plan.yaml:2: it is not said what to do: give command, call or prompt",
        ),
        (
            "plan:\n  command: x\n  widht: 2\n",
            "plan.yaml:3: widht: there is no 'widht' in a plan; did you mean width?",
        ),
        (
            "plan:\n  command: x\n  width: many\n",
            "plan.yaml:3: width: must be a whole number, not 'many'",
        ),
        (
            "plan:\n  command: x\n  order: alphabet\n",
            "plan.yaml:3: order: it must be one of parallel, sequential, depe",
        ),
        (
            "plan:\n  command: x\n  fail_fast: 1\n",
            "plan.yaml:3: fail_fast: it must be true or false, not 1",
        ),
        ("plan:\n  command: x\n  timeout: soon\n", "plan.yaml:3: timeout: "),
        ("plan:\n  command: x\n  budget: lots\n", "plan.yaml:3: budget: "),
        ("plan:\n  command: [x]\n", "plan.yaml:2: command: it must be a text, not ['x']"),
        (
            "plan:\n  command: x\n  call: a:b\n",
            "plan.yaml:2: command and plan.yaml:3: call exclude each other",
        ),
        ("plan:\n  call: a:b\n  temperature: 1\n", "plan.yaml:3: temperature is for a model"),
        (
            "plan:\n  prompt: x\n  temperature: -1\n",
            "plan.yaml:3: temperature: it must be a number of at least 0",
        ),
        ("plan:\n  command: x\n  path: nowhere\n", "nowhere is no directory"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_line(project, text, said):
    project.file("plan.yaml", text)
    found = project("run", "plan.yaml")
    assert found.code == 2
    assert said in found.err
    assert found.err.count("\n") == 1
    assert not project.store.exists()


def test_what_is_for_other_jobs_is_refused(project):
    project.file("plan.yaml", FILE)
    assert "--input is for workflows" in project("run", "plan.yaml", "-i", "a=b").err
    assert "--simulate is for workflows" in project("run", "plan.yaml", "--simulate").err


@pytest.mark.parametrize(
    ("facts", "valid"),
    [
        ({"command": "x", "width": 3, "timeout": "5min", "order": "dependencies"}, True),
        ({"prompt": "x", "model": "a/b", "temperature": 0.5}, True),
        ({"width": 3}, False),
        ({"command": "x", "call": "a:b"}, False),
        ({"command": "x", "widht": 3}, False),
    ],
)
def test_the_schema_knows_the_same_words(project, facts, valid):
    schema = json.loads(project("schema", "plan").out)
    with nullcontext() if valid else pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {"plan": facts})
    project.file("plan.yaml", json.dumps({"plan": {**facts, "path": "src"}}))
    if "model" not in facts:
        assert (project("run", "plan.yaml", "--check").code == 0) == valid
