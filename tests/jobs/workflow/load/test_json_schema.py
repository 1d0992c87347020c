"""The JSON schema for editors accepts what the loader accepts, and refuses what it can check."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
import yaml

from abreast.jobs.workflow.load import step_words
from abreast.jobs.workflow.load.step_words import workflow_schema
from tests.jobs.workflow.large import LARGE

HEADER = {"workflow": {"id": "flow"}}


@pytest.fixture(scope="module")
def check():
    return jsonschema_rs.validator_for(workflow_schema()).validate


def test_it_takes_a_file_that_says_everything(check):
    tree = yaml.safe_load(LARGE)
    cases = next(one for one in tree["steps"] if one["id"] == "route")["cases"]
    for key in [key for key in cases if not isinstance(key, str)]:
        cases[str(key)] = cases.pop(key)
    check(tree)


@pytest.mark.parametrize(
    "step",
    [
        {"id": "a", "command": "x", "timeout": None},
        {"id": "a", "type": "registered", "any": 3},
        {
            "id": "a",
            "type": "fan-out",
            "items": [],
            "step": {"command": "x"},
            "max_concurrency": None,
        },
        {"id": "a", "type": "gate", "message": "x", "on_reject": None},
    ],
)
def test_it_takes_what_the_loader_takes(check, step):
    check({**HEADER, "steps": [step]})


@pytest.mark.parametrize(
    "step",
    [
        {"command": "x"},
        {"id": "a:b", "command": "x"},
        {"id": "a"},
        {"id": "a", "command": 3},
        {"id": "a", "commnad": "x", "command": "y"},
        {"id": "a", "type": "init"},
        {"id": "a", "type": "shell"},
        {"id": "a", "type": "shell", "run": "x", "timeout": 0},
        {"id": "a", "type": "shell", "run": "x", "retry": 101},
        {"id": "a", "type": "shell", "run": "x", "continue_on_error": "yes"},
        {"id": "a", "type": "shell", "run": "x", "effect": "never"},
        {"id": "a", "type": "python", "call": "x"},
        {"id": "a", "type": "if", "condition": True, "then": [{"id": "b"}]},
        {"id": "a", "type": "switch", "expression": "x", "cases": {"a": {}}},
        {"id": "a", "type": "fan-out", "items": []},
        {"id": "a", "type": "fan-out", "items": [], "step": {"type": "shell"}},
        {"id": "a", "type": "fan-in", "wait_for": []},
        {"id": "a", "command": "x", "capture_max_bytes": 3},
    ],
)
def test_it_refuses_what_the_loader_refuses(check, step):
    with pytest.raises(jsonschema_rs.ValidationError):
        check({**HEADER, "steps": [step]})


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {**HEADER},
        {**HEADER, "steps": []},
        {"workflow": {"id": "Big"}, "steps": [{"id": "a", "command": "x"}]},
        {**HEADER, "steps": [{"id": "a", "command": "x"}], "requires": {"permissions": 1}},
        {**HEADER, "steps": [{"id": "a", "command": "x"}], "inputs": {"a": {"type": "text"}}},
        {**HEADER, "steps": [{"id": "a", "command": "x"}], "outputs": {"a": {"values": 1}}},
    ],
)
def test_it_refuses_a_wrong_file(check, tree):
    with pytest.raises(jsonschema_rs.ValidationError):
        check(tree)


def test_it_has_every_type_and_every_word_of_the_loader():
    branches = workflow_schema()["$defs"]["template"]["allOf"]
    said = {
        one["if"]["properties"]["type"]["const"]: set(one["then"]["properties"]) for one in branches
    }
    assert said == {kind: set(step_words.words_of(kind)) for kind in step_words.KINDS}


def test_it_can_be_written_as_json():
    assert json.loads(json.dumps(workflow_schema())) == workflow_schema()
