"""Inputs: converted to the declared types, all problems together, asked for only if possible."""

from __future__ import annotations

import pytest

from abreast.jobs.workflow.inputs import coerce, resolve_inputs
from abreast.jobs.workflow.spec import WorkflowInput


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("string", "5", "5"),
        ("string", "", ""),
        ("number", "42", 42),
        ("number", "3.5", 3.5),
        ("number", "3.0", 3),
        ("number", 3.0, 3),
        ("number", 7, 7),
        ("number", " 7 ", 7),
        ("number", "12345678901234567891", 12345678901234567891),
        ("number", 2**70 + 1, 2**70 + 1),
        ("number", "1e3", 1000),
        ("boolean", "true", True),
        ("boolean", "YES", True),
        ("boolean", "1", True),
        ("boolean", "no", False),
        ("boolean", "False", False),
        ("boolean", "0", False),
        ("boolean", True, True),
    ],
)
def test_a_value_becomes_what_is_declared(kind, given, value):
    found = coerce(WorkflowInput("x", 1, type=kind), given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("string", 5, "the input 'x' must be a text, not 5; put it in quotes"),
        ("string", None, "must be a text, not None"),
        ("number", "abc", "the input 'x' must be a number, not 'abc'"),
        ("number", True, "must be a number, not True"),
        ("number", "inf", "must be a number, not inf"),
        ("number", float("inf"), "must be a number, not inf"),
        ("number", float("nan"), "must be a number, not nan"),
        ("number", [1], "must be a number, not [1]"),
        ("number", None, "must be a number, not None"),
        ("boolean", "maybe", "the input 'x' must be true or false, not 'maybe'"),
        ("boolean", 1, "must be true or false, not 1"),
        ("boolean", "9" * 90, "not '99999"),
    ],
)
def test_a_value_that_is_not_what_is_declared_is_refused(kind, given, says):
    with pytest.raises(ValueError, match="the input 'x'") as caught:
        coerce(WorkflowInput("x", 1, type=kind), given)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 130


def test_a_number_of_very_many_digits_is_a_number_or_refused():
    assert coerce(WorkflowInput("x", 1, type="number"), "9" * 4000) == int("9" * 4000)
    with pytest.raises(ValueError, match="must be a number"):
        coerce(WorkflowInput("x", 1, type="number"), "9" * 5000)
    with pytest.raises(ValueError, match="not a number of very many digits"):
        coerce(WorkflowInput("x", 1), 10**5000)


def test_a_choice_must_be_one_of_those_there_are():
    choice = WorkflowInput("x", 1, type="number", enum=(1, 2))
    assert coerce(choice, "2") == 2
    with pytest.raises(ValueError, match="the input 'x' must be one of 1, 2, not '3'"):
        coerce(choice, "3")
    with pytest.raises(ValueError, match="must be one of 1, not True"):
        coerce(WorkflowInput("x", 1, type="boolean", enum=(1,)), given=True)


def test_the_integration_may_be_auto_whatever_the_choices_are():
    assert coerce(WorkflowInput("integration", 1, enum=("claude",)), "auto") == "auto"
    with pytest.raises(ValueError, match="must be one of 'claude', not 'auto'"):
        coerce(WorkflowInput("other", 1, enum=("claude",)), "auto")


INPUTS = [
    WorkflowInput("spec", 1, required=True, prompt="What?"),
    WorkflowInput("count", 2, type="number", has_default=True, default="5"),
    WorkflowInput("note", 3),
]


def test_what_is_given_comes_before_the_default_and_what_is_neither_is_left_out():
    assert resolve_inputs(INPUTS, {"spec": "x"}) == {"spec": "x", "count": 5}
    assert resolve_inputs(INPUTS, {"spec": "x", "count": "7", "note": "n"}) == {
        "spec": "x",
        "count": 7,
        "note": "n",
    }
    assert resolve_inputs([], {}) == {}


def test_somebody_is_asked_for_what_is_required_and_for_nothing_else():
    asked = []

    def ask(one):
        asked.append(one)
        return "said"

    assert resolve_inputs(INPUTS, {}, ask) == {"spec": "said", "count": 5}
    assert asked == [INPUTS[0]]
    assert resolve_inputs(INPUTS, {"spec": "x"}, ask) == {"spec": "x", "count": 5}
    assert len(asked) == 1


def test_nobody_is_asked_when_the_run_can_not_begin_anyway():
    with pytest.raises(ValueError, match="there is no input 'spek'; did you mean spec"):
        resolve_inputs(INPUTS, {"spek": "x"}, ask=lambda one: pytest.fail("asked"))


def test_all_problems_are_said_together():
    with pytest.raises(ValueError, match="no input") as caught:
        resolve_inputs(INPUTS, {"cuont": 1, "count": "many", "zzz": 1})
    assert str(caught.value).splitlines() == [
        "there is no input 'cuont'; did you mean count?",
        "there is no input 'zzz'; there are spec, count, note",
        "the input 'spec' is required: pass --input spec=...",
        "the input 'count' must be a number, not 'many'",
    ]


def test_a_workflow_without_inputs_takes_none():
    with pytest.raises(ValueError, match="there is no input 'a'; the workflow takes none"):
        resolve_inputs([], {"a": 1})
