"""Loading workflow files: the typed steps, and the problems of invalid ones."""

from __future__ import annotations

import os
import re
import textwrap

import pytest

from abreast.core.errors import WorkflowInvalid
from abreast.jobs.workflow import spec as typed
from abreast.jobs.workflow.load.load import load
from tests.jobs.workflow.large import LARGE

HEADER = "workflow: {id: flow}\n"  # line 1; steps begin on line 2


def problems(text, **options):
    with pytest.raises(WorkflowInvalid) as caught:
        load(text, "flow.yaml", **options)
    said = [str(one) for one in caught.value.problems]
    assert str(caught.value) == "\n".join(said)
    assert len(str(caught.value).splitlines()) == len(said)
    assert (
        said == sorted(said, key=lambda one: (int(one.split(":")[1]), one))
        or len({o[0] for o in said}) > 1
    )
    return said


def steps(text):
    """Steps from their YAML; the first line of the text is line 3 of the file."""
    return HEADER + "steps:\n" + textwrap.indent(textwrap.dedent(text).strip("\n") + "\n", "  ")


def only(text, **options):
    (step,) = load(steps(text), "flow.yaml", **options).steps
    return step


# --- valid files


def test_everything_that_can_be_said_is_read():
    flow = load(LARGE, "large.yaml", check_sample=lambda facts: None)
    assert (flow.id, flow.name, flow.version, flow.author) == (
        "everything",
        "Everything",
        "1.2.3",
        "us",
    )
    assert flow.integration.text == "{{ inputs.integration }}"
    assert flow.options["fast"] is True
    assert flow.options["note"].lone
    assert flow.file == "large.yaml"
    assert flow.text == LARGE
    assert flow.warnings == ()
    assert [one.name for one in flow.inputs] == [
        "spec",
        "count",
        "loud",
        "scope",
        "integration",
        "verdict",
    ]
    assert flow.inputs[0] == typed.WorkflowInput("spec", 15, required=True, prompt="What to build")
    assert flow.inputs[3].enum == ("full", "part")
    assert flow.outputs["fixed_one"] == 3
    kinds = [type(one).__name__ for one in flow.steps]
    assert kinds == [
        "Command",
        "Prompt",
        "Shell",
        "Python",
        "GateStep",
        "If",
        "Switch",
        "Loop",
        "Loop",
        "FanOut",
        "FanOut",
        "FanIn",
        "Sample",
    ]
    lines = LARGE.splitlines()
    for one in flow.steps:
        assert f"- id: {one.common.id}" in lines[one.common.line - 1]


def test_each_type_of_step_has_what_was_said():
    command, ask, shell, python, gate, branch, route, again, more, spread, spread2, gather, draw = (
        load(LARGE, "large.yaml").steps
    )
    assert command.command == "speckit.specify"
    assert command.options == {"max": 3}
    assert command.integration_args[0] == "--fast"
    assert command.integration_args[1].lone
    assert (command.capture, command.capture_max_bytes) == (True, 4096)
    assert command.common.input["args"].text == "{{ inputs.spec }}"
    assert ask.prompt.text == "Review {{ inputs.spec }}"
    assert (ask.temperature, ask.max_tokens, ask.system.text) == (0.2, 200, "Be brief")
    assert (ask.common.retry, ask.common.timeout, ask.common.budget, ask.common.lane) == (
        2,
        12.5,
        "50req,1usd",
        "openai",
    )
    assert ask.common.output_schema["type"] == "object"
    assert ask.common.needs is None
    assert shell.json
    assert shell.run.text == 'set -e\necho "{{ inputs.spec }}"\nexit 0\n'
    assert (shell.common.continue_on_error, shell.common.effect, shell.common.timeout) == (
        True,
        "idempotent",
        60,
    )
    assert (python.call, python.given["names"], python.common.needs) == (
        "pkg.module:function",
        ["a", "b"],
        ("ask",),
    )
    assert (gate.options, gate.on_reject, gate.verdict_input) == (
        ("Approve", "Reject"),
        "retry",
        "verdict",
    )
    assert gate.show_file.lone
    assert branch.condition.lone
    assert [one.common.id for one in (*branch.then, *branch.otherwise)] == [
        "yes-branch",
        "no-branch",
    ]
    assert [case for case, _ in route.cases] == ["Approve", "1", "True", "on"]
    assert route.default[0].message == 3
    assert (again.max_iterations, again.at_least_once) == (5, False)
    assert (more.max_iterations, more.at_least_once, more.condition.text) == (10, True, "false")
    assert spread.max_concurrency.lone
    assert (spread.min_success, spread.max_failures, spread.canary) == (
        0.5,
        3,
        typed.Canary(2, 0.5),
    )
    assert [one.common.id for one in spread.steps] == ["one", "two"]
    assert spread.key.lone
    assert [one.common.id for one in spread2.steps] == ["item"]
    assert spread2.items[2]["a"].lone
    assert spread2.max_concurrency == 1
    assert gather.wait_for == ("spread", "spread-again")
    assert draw.facts["breadth"] == 3
    assert not isinstance(draw.facts["prompt"], str)


def test_a_text_without_braces_stays_as_it_is_and_a_null_counts_as_left_out():
    step = only(
        "- {id: a, type: gate, message: null, options: null, on_reject: null, show_file: null, "
        "timeout: null}"
    )
    assert (step.message, step.options, step.on_reject, step.show_file) == (
        None,
        ("approve", "reject"),
        "abort",
        None,
    )
    assert only("- {id: a, command: x, input: {a: b, yes: 1, 3: c}}").common.input == {
        "a": "b",
        "yes": 1,
        "3": "c",
    }


@pytest.mark.parametrize(
    "given", ["null", "abc", "[1]", "{a: b}", "-1", ".inf", ".nan", '"4"', "1" * 300]
)
def test_any_max_concurrency_is_taken(given):
    only(f"- {{id: a, type: fan-out, items: [], max_concurrency: {given}, step: {{command: x}}}}")


def test_the_smallest_file_is_a_header_and_a_step():
    flow = load(HEADER + "steps: [{id: a, command: x}]", "flow.yaml")
    assert (flow.name, flow.version, flow.inputs, flow.outputs, flow.warnings) == (
        "flow",
        "",
        (),
        {},
        (),
    )
    assert load(
        "schema_version: 1.0\ninputs:\nrequires:\noutputs:\n"
        + HEADER
        + "steps: [{id: a, command: x}]",
        "f",
    )


def test_a_date_stays_a_text_and_a_merge_key_is_followed():
    text = (
        HEADER
        + "steps:\n- &one {id: a, type: shell, run: echo, input: {day: 2024-01-01, e: =}}\n"
        + "- {<<: *one, id: b}\n"
    )
    first, second = load(text, "flow.yaml").steps
    assert first.common.input == {"day": "2024-01-01", "e": "="}
    assert second.run.text == "echo"
    assert second.common.id == "b"


def test_ids_of_a_fan_out_are_its_own():
    text = """
        - {id: a, command: x}
        - {id: f, type: fan-out, items: [], step: {id: a, command: x}}
        - {id: g, type: fan-out, items: [], steps: [{id: a, command: x}]}
    """
    assert len(load(steps(text), "flow.yaml").steps) == 3


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_change_nothing(newline, mark):
    flow = load(mark + LARGE.replace("\n", newline), "large.yaml")
    assert [one.common.line for one in flow.steps] == [
        one.common.line for one in load(LARGE, "large.yaml").steps
    ]
    broken = mark + steps("- {id: a, command: x}\n- {id: b, type: shell, run: 3}").replace(
        "\n", newline
    )
    assert problems(broken)[0].startswith("flow.yaml:4: ")


# --- invalid files


BAD = [
    # keys that are for actions only
    *(
        (
            (
                "workflow: {id: a}\nsteps:\n  - {id: a, type: if, condition: true,\n"
                f"     {word},\n     then: []}}"
            ),
            4,
            says,
        )
        for word, says in [
            (
                "retry: 3",
                "'retry' is for steps that do something: set it on the steps in the if 'a'",
            ),
            ("lane: x", "'lane' is for steps that do something"),
            ("effect: once", "'effect' is for steps that do something"),
            ("output_schema: {}", "'output_schema' is for steps that do something"),
        ]
    ),
    # the whole file
    ("", 1, "the file is empty"),
    ("- a", 1, "a workflow must be a mapping, not ['a']"),
    ("a: [", 1, "this is no YAML: "),
    ("a:\n\t- b", 2, "this is no YAML: found character"),
    ("a: b\nb: 'x", 2, "this is no YAML: found unexpected end of stream"),
    ("a:\n\t- b", 2, "this is no YAML: found character that cannot start any token: a tab;"),
    ("a: {b: c\nd: e", 1, "this is no YAML: did not find expected ',' or '}' by line 2; the '{'"),
    ("a: b: c", 1, "this is no YAML: mapping values are not allowed in this context; put"),
    # a misspelt key, and not also what is missing without it
    ("workflow: {id: a}\nstep: []", 2, "there is no 'step' in a workflow's file; did you mean"),
    ("workflow: {id: a}\nsteps:\n  - {id: a, type: shell, runn: x}", 3, "there is no 'runn' in"),
    ("a: b\n\nc: \0", 3, "the character U+0000 can't stand in a YAML file"),
    ("a: b\nc: \ud800", 2, "the character U+D800 can't stand"),
    (f"{HEADER}--- \nx: y", 2, "a file holds one workflow"),
    ("#" * (5 * 1024 * 1024 + 1), 1, "the file is larger than 5 MiB"),
    ("ü" * (5 * 1024 * 512 + 1), 1, "the file is larger than 5 MiB"),
    ("a: " + "[" * 10_000, 1, "this is nested more than 100 levels deep"),
    ("- " * 10_000, 1, "this is nested more than 100 levels deep"),
    ("a: &a [*a]", 1, "*a stands inside of what it repeats"),
    ("a: *b", 1, "there is no &b before *b"),
    ("a: &a b\nc:\n- &a [*a]", 3, "*a stands inside of what it repeats"),
    (
        "a: " + "[" * 60 + "&x " + "[" * 30 + "]" * 90 + "\nb: " + "[" * 80 + "*x" + "]" * 80,
        2,
        "this is nested more",
    ),
    (
        f"{HEADER}a: !!python/object/apply:os.system [x]",
        2,
        "the tag !!python/object/apply:os.system is not read here",
    ),
    (f"{HEADER}a: !mine x", 2, "the tag !mine is not read here; write a plain value"),
    (f"{HEADER}a: !!set {{x}}", 2, "the tag !!set is not read here; write a plain mapping"),
    (f"{HEADER}a: !!int x", 2, "'x' is no int"),
    (f"{HEADER}a: !!int ''", 2, "'' is no int"),
    (f"{HEADER}a: !!bool x", 2, "'x' is no bool"),
    (f"{HEADER}a: {'1' * 500}", 2, "a number of 500 characters is too long"),
    (f"{HEADER}a: 1{':1' * 1000}", 2, "a number of 2001 characters is too long"),
    (f"{HEADER}? [a]\n: b", 2, "a key must be a text, not a list"),
    (f"{HEADER}a: {{<<: 3}}", 2, "<< takes a mapping"),
    (f"{HEADER}{HEADER}", 2, "'workflow' stands here a second time; it is on line 1 too"),
    # the top
    (
        "steps: [{id: a, command: x}]",
        1,
        "a workflow needs a header, such as 'workflow: {id: my-flow}'",
    ),
    ("workflow: x\nsteps: [{id: a, command: x}]", 1, "a workflow needs a header"),
    ("workflow: {name: x}\nsteps: [{id: a, command: x}]", 1, "the workflow has no 'id'"),
    (
        "workflow: {id: Big}",
        1,
        "'id' of the workflow must be lower-case letters, digits and hyphens, not 'Big'",
    ),
    ("workflow: {id: 3}", 1, "digits and hyphens, not 3; put it in quotes"),
    (
        "workflow:\n  id: a\n  version: 1.0",
        3,
        "'version' of the workflow must be a text such as '1.0.0', not 1.0; put it",
    ),
    ("workflow: {id: a, version: '1.0'}", 1, "must be a text such as '1.0.0', not '1.0'"),
    ("workflow: {id: a, model: 3}", 1, "'model' of the workflow must be a text, not 3"),
    ("workflow: {id: a, options: x}", 1, "'options' of the workflow must be a mapping, not 'x'"),
    (f"{HEADER}schema_version: 2", 2, "schema_version must be '1.0', not 2"),
    (f"{HEADER}schema_version: [1.0]", 2, "schema_version must be '1.0', not [1.0]"),
    (f"{HEADER}steps: []", 2, "a workflow needs 'steps', a list of at least one step"),
    (f"{HEADER}steps: {{a: b}}", 2, "a workflow needs 'steps'"),
    (HEADER, 1, "a workflow needs 'steps'"),
    (f"{HEADER}requires: [x]", 2, "'requires' must be a mapping, not ['x']"),
    (f"{HEADER}requires:\n  permissions: x", 3, "'requires.permissions' would not be kept"),
    # inputs and outputs
    (f"{HEADER}inputs: [x]", 2, "'inputs' must be a mapping"),
    (f"{HEADER}inputs:\n  a: 3", 3, "the input 'a' must be a mapping, such as {type: string}"),
    (
        f"{HEADER}inputs:\n  a:\n    type: text",
        4,
        "'type' of the input 'a' must be one of string, number, boolean, not",
    ),
    (f"{HEADER}inputs:\n  a: {{enum: x}}", 3, "'enum' of the input 'a' must be a list, not 'x'"),
    (
        f"{HEADER}inputs:\n  a: {{required: 'yes'}}",
        3,
        "'required' of the input 'a' must be true or false, without quot",
    ),
    (
        f"{HEADER}inputs:\n  a: {{default: 5}}",
        3,
        "the default can't be used: the input 'a' must be a text, not 5",
    ),
    (
        f"{HEADER}inputs:\n  a: {{default: null}}",
        3,
        "the default can't be used: the input 'a' must be a text, not None",
    ),
    (
        f"{HEADER}inputs:\n  a: {{type: number, default: true}}",
        3,
        "the input 'a' must be a number, not True",
    ),
    (
        f"{HEADER}inputs:\n  a: {{default: x, enum: [y]}}",
        3,
        "the input 'a' must be one of 'y', not 'x'",
    ),
    (f"{HEADER}outputs: 3", 2, "'outputs' must be a mapping, not 3"),
    (f"{HEADER}outputs:\n  a: 3", 3, "the output 'a' must be a mapping such as {value: ...}"),
    (f"{HEADER}outputs:\n  a: {{value: 1, x: 2}}", 3, "the output 'a' must be a mapping such as"),
    (f"{HEADER}outputs:\n  status: {{value: 1}}", 3, "an output can't be called 'status'"),
    (f"{HEADER}outputs:\n  'a b': {{value: 1}}", 3, "an output can't be called 'a b'"),
    # steps
    (steps("- x"), 3, "a step must be a mapping, not 'x'"),
    (steps("- {command: x}"), 3, "a step has no 'id'"),
    (steps("- {id: '', command: x}"), 3, "a step has no 'id'"),
    (steps("- {id: 3, command: x}"), 3, "an id must be a text, not 3; put it in quotes"),
    (steps("- {id: [a], command: x}"), 3, "an id must be a text, not ['a']"),
    (steps("- {id: on, command: x}"), 3, "an id must be a text, not True; put it in quotes"),
    (steps("- {id: 'a:b', command: x}"), 3, "the id 'a:b' must not hold ':'"),
    (
        steps("- {id: a, command: x}\n- {id: a, command: x}"),
        4,
        "the id 'a' is taken already, on line 3",
    ),
    (
        steps("- id: a\n  type: if\n  condition: true\n  then:\n  - {id: a, command: x}"),
        7,
        "the id 'a' is taken already",
    ),
    (
        steps("- id: a\n  type: shel"),
        4,
        "the step 'a': there is no type 'shel'; did you mean shell?",
    ),
    (steps("- id: a\n  type: [shell]"), 4, "'type' of the step 'a' must be a text, not ['shell']"),
    (steps("- id: a\n  type: init"), 4, "the step 'a': an init step sets up a spec-kit project"),
    (steps("- id: a\n  type: slot"), 3, "the slot step 'a' has no 'name'"),
    (
        steps("- id: a\n  type: slot\n  name: ' '"),
        5,
        "'name' of the slot step 'a' must be a text that is not blank",
    ),
    (
        steps("- id: a\n  type: slot\n  name: b\n  retry: 2"),
        6,
        "'retry' is for steps that do something",
    ),
    (
        steps(
            "- id: f\n  type: fan-out\n  items: [1]\n"
            "  step:\n    id: a\n    type: slot\n    name: b"
        ),
        7,
        "the slot 'a' stands in a fan-out, where no overlay can fill it",
    ),
    (
        steps("- id: a\n  type: github"),
        4,
        "the step 'a': a github step is not run here; use a shell step",
    ),
    (
        steps("- id: f\n  type: fan-out\n  items: []\n  step:\n    id: t\n    type: nope"),
        8,
        "the step 't': there is no type 'nope'",
    ),
    (
        steps(
            "- id: s\n  type: switch\n  expression: x\n  cases:\n    a:\n    - {id: t, type: nope}"
        ),
        8,
        "there is no type 'nope'",
    ),
    (
        steps("- id: a\n  commnad: x\n  command: y"),
        4,
        "there is no 'commnad' in a command step; did you mean command?",
    ),
    (
        steps("- {id: a, type: shell, run: x,\n   cases: 3}"),
        4,
        "there is no 'cases' in a shell step; there are run",
    ),
    (steps("- {id: a}"), 3, "the command step 'a' has no 'command'"),
    (
        steps("- {id: a, command: 3}"),
        3,
        "'command' of the command step 'a' must be a text, not 3; put it in quotes",
    ),
    (
        steps("- {id: a, command: null}"),
        3,
        "'command' of the command step 'a' must be a text, not None",
    ),
    (
        steps("- {id: a, command: x, input: y}"),
        3,
        "'input' of the command step 'a' must be a mapping, not 'y'",
    ),
    (
        steps("- {id: a, command: x, options: y}"),
        3,
        "'options' of the command step 'a' must be a mapping",
    ),
    (
        steps("- {id: a, command: x, integration_args: [3]}"),
        3,
        "'integration_args' of the command step 'a' must be a list",
    ),
    (
        steps("- {id: a, command: x, capture: 'yes'}"),
        3,
        "'capture' of the command step 'a' must be true or false",
    ),
    (
        steps("- {id: a, command: x, capture: true, capture_max_bytes: 0}"),
        3,
        "must be a whole number of bytes, or -1",
    ),
    (
        steps("- {id: a, command: x,\n   capture_max_bytes: 9}"),
        4,
        "'capture_max_bytes' of the step 'a' needs 'capture: true'",
    ),
    (
        steps("- {id: a, command: x, continue_on_error: 'true'}"),
        3,
        "'continue_on_error' of the command step 'a' must be true",
    ),
    (
        steps("- {id: a, command: x, continue_on_error: null}"),
        3,
        "'continue_on_error' of the command step 'a' must be true",
    ),
    (
        steps("- {id: a, command: x, retry: 101}"),
        3,
        "must be a whole number from 0 to 100, not 101",
    ),
    (
        steps("- {id: a, command: x, retry: {times: 101}}"),
        3,
        "'retry' of the step 'a': it must be {times: 3, delay: 10}",
    ),
    (steps("- {id: a, command: x, retry: {delay: 1}}"), 3, "it must be {times: 3, delay: 10}"),
    (
        steps("- {id: a, command: x, retry: {times: 1, delay: -1}}"),
        3,
        "it must be {times: 3, delay: 10}",
    ),
    (
        steps("- {id: a, command: x, retry: {times: 1, wait: 1}}"),
        3,
        "it must be {times: 3, delay: 10}",
    ),
    (
        steps("- {id: a, command: x, if: 3}"),
        3,
        "'if' of the command step 'a' must be true, false or an expression",
    ),
    (
        steps("- {id: a, command: x, env: {A-B: c}}"),
        3,
        "'env' of the command step 'a' must be a mapping of names",
    ),
    (
        steps("- {id: a, command: x, env: {A: [c]}}"),
        3,
        "'env' of the command step 'a' must be a mapping of names",
    ),
    (
        steps("- {id: a, type: python, call: 'm:f', cwd: x}"),
        3,
        "there is no 'cwd' in a python step",
    ),
    (
        steps("- {id: a, command: x, retry: true}"),
        3,
        "must be a whole number from 0 to 100, not True",
    ),
    (
        steps("- {id: a, command: x, timeout: 0}"),
        3,
        "'timeout' of the command step 'a' must be a number of seconds above 0",
    ),
    (
        steps("- {id: a, command: x, timeout: .inf}"),
        3,
        "must be a number of seconds above 0, not inf",
    ),
    (
        steps(f"- {{id: a, command: x, timeout: {'9' * 350}}}"),
        3,
        "must be a number of seconds above 0",
    ),
    (
        steps("- {id: a, command: x, timeout: '5'}"),
        3,
        "must be a number of seconds above 0, not '5'",
    ),
    (
        steps("- {id: a, command: x, budget: 3 apples}"),
        3,
        "'budget' of the step 'a': '3 apples' is no amount",
    ),
    (
        steps("- {id: a, command: x, budget: 5}"),
        3,
        "'budget' of the command step 'a' must be a text, not 5",
    ),
    (
        steps("- {id: a, command: x, effect: never}"),
        3,
        "must be one of pure, idempotent, once, not 'never'",
    ),
    (
        steps("- {id: a, command: x, lane: ''}"),
        3,
        "'lane' of the command step 'a' must be a text, not ''",
    ),
    (
        steps("- {id: a, command: x, output_schema: {type: nope}}"),
        3,
        "'output_schema' of the step 'a': the schema can't",
    ),
    (
        steps("- {id: a, command: x, output_schema: x.json}"),
        3,
        "'output_schema' of the command step 'a' must be a mapping",
    ),
    (
        steps("- {id: a, command: x, needs: b}"),
        3,
        "'needs' of the command step 'a' must be a list of ids of steps, not 'b'",
    ),
    (
        steps("- {id: a, command: x}\n- {id: b, command: x, needs: [aa]}"),
        4,
        "the step 'b' needs 'aa', which is no step of the same list; did you mean a?",
    ),
    (steps("- {id: a, command: x, needs: [a]}"), 3, "the step 'a' needs itself"),
    (
        steps("- {id: a, command: x, needs: [b]}\n- {id: b, command: x, needs: [a]}"),
        3,
        "wait for each other: a -> b -> a; take",
    ),
    (
        steps("- {id: a, command: x, needs: [b]}\n- {id: b, command: x}"),
        3,
        "a -> b -> a; take one out of needs (a step without",
    ),
    (
        steps(
            """
            - {id: z, command: x}
            - {id: a, command: x, needs: [c]}
            - {id: b, command: x, needs: [a]}
            - {id: c, command: x, needs: [b, z]}
            """
        ),
        4,
        "a -> c -> b -> a",
    ),
    (
        steps(
            "- {id: a, type: if, condition: true, then: [{id: b, command: x}]}\n"
            "- {id: c, command: x, needs: [b]}"
        ),
        4,
        "the step 'c' needs 'b', which is no step of the same list",
    ),
    (
        steps("- {id: a, type: prompt, prompt: [x]}"),
        3,
        "'prompt' of the prompt step 'a' must be a text, not ['x']",
    ),
    (
        steps("- {id: a, type: prompt, prompt: x, temperature: hot}"),
        3,
        "must be a number of at least 0, not 'hot'",
    ),
    (
        steps("- {id: a, type: prompt, prompt: x, max_tokens: 0}"),
        3,
        "must be a whole number of at least 1, not 0",
    ),
    (steps("- {id: a, type: shell}"), 3, "the shell step 'a' has no 'run'"),
    (
        steps("- {id: a, type: shell, run: [x]}"),
        3,
        "'run' of the shell step 'a' must be a text, not ['x']",
    ),
    (
        steps("- {id: a, type: shell, run: x, output_format: xml}"),
        3,
        "must be one of json, not 'xml'",
    ),
    (
        steps("- {id: a, type: python, call: pkg.mod}"),
        3,
        "must be a function as module:function, not 'pkg.mod'",
    ),
    (
        steps("- {id: a, type: python, call: 'a:b', with: [x]}"),
        3,
        "'with' of the python step 'a' must be a mapping",
    ),
    (steps("- {id: a, type: gate}"), 3, "the gate step 'a' has no 'message'"),
    (
        steps("- {id: a, type: gate, message: x, options: []}"),
        3,
        "must be a list of at least one text, not []",
    ),
    (
        steps("- {id: a, type: gate, message: x, options: [1]}"),
        3,
        "must be a list of at least one text, not [1]",
    ),
    (
        steps("- {id: a, type: gate, message: x, on_reject: stop}"),
        3,
        "must be one of abort, skip, retry, not 'stop'",
    ),
    (
        steps("- {id: a, type: gate, message: x,\n   options: [ok]}"),
        4,
        "the gate 'a' can't be rejected: add 'reject'",
    ),
    (
        steps("- {id: a, type: gate, message: x, verdict_input: v}"),
        3,
        "'verdict_input' of the gate 'a' names no input: 'v'; there is none",
    ),
    (
        (
            f"{HEADER}inputs: {{verdict: {{}}}}\n"
            "steps: [{id: a, type: gate, message: x, verdict_input: verdic}]"
        ),
        3,
        "did you mean verdict?",
    ),
    (
        (
            f"{HEADER}inputs: {{v: {{enum: [approve]}}}}\n"
            "steps: [{id: a, type: gate, message: x, on_reject: retry, verdict_input: v}]"
        ),
        3,
        "is emptied when the gate is rejected",
    ),
    (
        (
            f"{HEADER}inputs: {{v: {{}}}}\n"
            "steps: [{id: f, type: fan-out, items: [], "
            "step: {id: g, type: gate, message: x, verdict_input: v}}]"
        ),
        3,
        "would decide for every item",
    ),
    (
        (
            f"{HEADER}inputs: {{v: {{}}}}\n"
            "steps: [{id: f, type: fan-out, items: [], steps: [{id: i, type: if, condition: true,\n"
            "  then: [{id: g, type: gate, message: x, verdict_input: v}]}]}]"
        ),
        4,
        "would decide for every item",
    ),
    (steps("- {id: a, type: if, then: []}"), 3, "the if step 'a' has no 'condition'"),
    (steps("- {id: a, type: if, condition: true}"), 3, "the if step 'a' has no 'then'"),
    (
        steps("- {id: a, type: if, condition: [1], then: []}"),
        3,
        "must be true, false or an expression such as",
    ),
    (
        steps("- {id: a, type: if, condition: inputs.n > 3, then: []}"),
        3,
        "a condition without {{ }} is a text and always holds",
    ),
    (
        steps("- {id: a, type: if, condition: '   ', then: []}"),
        3,
        "a condition without {{ }} is a text and always holds",
    ),
    (
        steps("- {id: a, type: while, condition: '{{ a }} and {{ b }}', steps: []}"),
        3,
        "a condition must be one block",
    ),
    (
        steps("- {id: a, type: do-while, condition: 'not {{ a }}', steps: []}"),
        3,
        "a condition must be one block",
    ),
    (
        steps("- {id: a, type: if, condition: true, then: {id: b}}"),
        3,
        "'then' of the if step 'a' must be a list of steps",
    ),
    (
        steps("- {id: a, type: if, condition: true, then: [], else: x}"),
        3,
        "'else' of the if step 'a' must be a list of st",
    ),
    (steps("- {id: a, type: switch, cases: {}}"), 3, "the switch step 'a' has no 'expression'"),
    (
        steps("- {id: a, type: switch, expression: x, case: {}}"),
        3,
        "there is no 'case' in a switch step; did you mean cases?",
    ),
    (
        steps("- {id: a, type: switch, expression: x, cases: {a: b}}"),
        3,
        "must be a mapping of lists of steps",
    ),
    (
        steps("- {id: a, type: while, condition: true, step: []}"),
        3,
        "there is no 'step' in a while step; did you mean steps?",
    ),
    (
        steps("- {id: a, type: while, condition: true, steps: [], max_iterations: 0}"),
        3,
        "must be a whole number of at least 1",
    ),
    (
        steps("- {id: a, type: fan-out, step: {id: b, command: x}}"),
        3,
        "the fan-out step 'a' has no 'items'",
    ),
    (steps("- {id: a, type: fan-out, items: []}"), 3, "the fan-out 'a' needs 'step' or 'steps'"),
    (
        steps("- {id: a, type: fan-out, items: [], step: [x]}"),
        3,
        "'step' of the fan-out step 'a' must be a step, not ['x']",
    ),
    (
        steps(
            "- {id: a, type: fan-out, items: [], step: {command: x}, steps: [{id: a, command: x}]}"
        ),
        3,
        "has both 'step' and 'steps'",
    ),
    (
        steps("- {id: a, type: fan-out, items: [], steps: []}"),
        3,
        "must be a list of at least one step, not []",
    ),
    (
        steps("- {id: a, type: fan-out, items: [], step: {command: x}, min_success: 1.5}"),
        3,
        "must be a count, or a part below 1, not 1.5",
    ),
    (
        steps("- {id: a, type: fan-out, items: [], step: {command: x}, max_failures: -1}"),
        3,
        "must be a whole number of at least 0",
    ),
    (
        steps(
            "- {id: a, type: fan-out, items: [], step: {command: x}, canary: {min_success: 0.5}}"
        ),
        3,
        "the canary of the fan-out 'a' has no 'items'",
    ),
    (
        steps(
            "- {id: a, type: fan-out, items: [], step: {command: x}, "
            "canary: {items: 2, min_success: 2}}"
        ),
        3,
        "must be a part between 0 and 1, not 2",
    ),
    (
        steps("- {id: a, type: fan-out, items: [], step: {command: x}, canary: {item: 2}}"),
        3,
        "there is no 'item' in a canary; did you mean items?",
    ),
    (
        steps("- {id: a, type: fan-in, wait_for: []}"),
        3,
        "must be a list of at least one text, not []",
    ),
    (steps("- {id: a, type: fan-in, wait_for: [a]}"), 3, "the fan-in 'a' waits for itself"),
    (
        steps("- {id: a, command: x}\n- {id: b, type: fan-in, wait_for: [aa]}"),
        4,
        "waits for 'aa', which is no earlier step here; did you mean a?",
    ),
    (
        steps("- {id: b, type: fan-in, wait_for: [later]}\n- {id: later, command: x}"),
        3,
        "waits for 'later', which is no earlier step here",
    ),
    (
        steps("- {id: a, type: fan-in, wait_for: [x], output: y}"),
        3,
        "'output' of the fan-in step 'a' must be a mapping",
    ),
    (
        steps("- {id: a, type: sample, sample: x}"),
        3,
        "'sample' of the sample step 'a' must be a mapping, not 'x'",
    ),
    (
        steps("- {id: a, type: workflow, workflow: b.yaml}"),
        3,
        "the workflow 'b.yaml': files can't be looked for here",
    ),
    # expressions and scripts, in every kind of text
    (steps("- id: a\n  command: x\n  input:\n    args: '{{ inputs. }}'"), 6, ""),
    (steps("- id: a\n  type: prompt\n  prompt: |\n    one\n    two {{ + }}"), 7, ""),
    (steps("- id: a\n  type: prompt\n  prompt: >\n    one\n    two\n\n    three {{ + }}"), 9, ""),
    (steps("- id: a\n  type: prompt\n  prompt: one\n    two\n    {{ + }}"), 7, ""),
    (steps("- id: a\n  type: prompt\n  prompt: 'it''s\n    two\n\n    {{ + }}'"), 8, ""),
    (
        steps('- id: a\n  type: prompt\n  prompt: "\\"\\x41\\u0042\\n \\\n    two\n    {{ + }}"'),
        7,
        "",
    ),
    (
        steps(
            "- id: a\n  type: prompt\n"
            "  prompt: > # folded, as it is long\n    a\n    b\n    {{ + }}"
        ),
        8,
        "",
    ),
    (
        steps(
            "- id: a\n  type: prompt\n  prompt: 'QQQQ\n    a\n    b\n    {{ + }}\n    c'".replace(
                "Q", "''"
            )
        ),
        8,
        "",
    ),
    (
        steps("- id: a\n  type: if\n  condition: >-\n\n    {{ inputs.x\n       + }}\n  then: []"),
        7,
        "",
    ),
]


@pytest.mark.parametrize(("text", "line", "says"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_said_with_its_line(text, line, says):
    said = problems(text)
    assert any(one.startswith(f"flow.yaml:{line}: ") and says in one for one in said), said


def test_all_problems_are_said_together():
    text = (
        HEADER
        + "schema_version: 3\nsteps:\n- {id: a, type: shel}\n- {id: b}\n"
        + "- {id: b, command: 3, tiemout: 1}\n"
    )
    assert [one.split(":")[1] for one in problems(text)] == ["2", "4", "5", "6", "6", "6"]


def test_problems_are_still_found_beneath_a_wrong_step():
    text = steps("- id: a\n  type: if\n  then:\n  - {id: b, type: nope}\n  - {id: c}\n  wrong: 1")
    assert [one.split(":")[1] for one in problems(text)] == ["3", "6", "7", "8"]


def test_a_bomb_of_aliases_is_not_unfolded():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (said,) = problems("\n".join(lines))
    assert "the file holds more than 200,000 values, its aliases unfolded" in said


def test_a_bomb_of_merged_mappings_is_not_unfolded():
    lines = ["a0: &a0 {" + ", ".join(f"k{n}: x" for n in range(100)) + "}"]
    lines += [f"a{n}: &a{n} [{', '.join([f'{{<<: *a{n - 1}}}'] * 100)}]" for n in (1,)]
    lines += [f"a2: [{', '.join(['*a1'] * 100)}]"]
    assert "more than 200,000 values" in problems("\n".join(lines))[0]


def test_many_wrong_words_take_no_long_search_each():
    text = (
        HEADER
        + "steps:\n"
        + "".join(f"- {{id: s{n}, command: x, needs: [t{n}], worng{n}: 1}}\n" for n in range(3000))
    )
    said = problems(text)
    assert len(said) == 6000
    assert sum("did you mean" in one for one in said) <= 50


def test_steps_can_be_nested_deep_but_not_without_end():
    def nested(levels):
        inner = "{id: last, command: x}"
        for n in range(levels):
            inner = f"{{id: s{n}, type: if, condition: true, then: [{inner}]}}"
        return f"{HEADER}steps: [{inner}]"

    load(nested(48), "flow.yaml")
    assert "nested more than 100 levels" in problems(nested(50))[0]


# --- warnings


def warnings(text):
    return load(text, "flow.yaml").warnings


def test_names_that_lead_nowhere_are_warned_of():
    text = steps("""
        - {id: ask, command: x, input: {a: "{{ steps.aks.output }}", b: "{{ inputs.spec }}"}}
        - id: fan
          type: fan-out
          items: "{{ steps.ask.output.data }}"
          step:
            id: inner
            type: shell
            run: "echo {{ steps.inner.output }} {{ steps['fan:inner:0'].output }}"
    """)
    assert warnings(text) == (
        (3, "inputs.spec is always null, as there is no such input; there is none at all"),
        (3, "steps.aks is always null, as there is no such step; did you mean ask?"),
    )


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (
            "secrets.TOKEN",
            (
                "secrets.TOKEN is always null, as there is no 'secrets' in expressions; "
                "there are inputs, "
            ),
        ),
        ("env.HOME", "env.HOME is always null, as there is no 'env' in expressions"),
        ("input.x", "did you mean inputs?"),
        (
            "steps.a.output.stdot",
            "steps.a.output.stdot is always null, as that step gives none; did you mean stdout?",
        ),
        (
            "steps.a.outputs.stdout",
            "steps.a.outputs is always null, as no step has it; did you mean output?",
        ),
        ("steps.f.output.result", "did you mean results?"),
        ("steps.in.output.summ", "did you mean sum?"),
    ],
)
def test_namespaces_and_outputs_that_are_not_there_are_warned_of(expression, said):
    text = steps(f"""
        - {{id: a, type: shell, run: ls}}
        - id: f
          type: fan-out
          items: [1]
          step: {{id: x, type: shell, run: "ls {{{{ item }}}}"}}
        - {{id: in, type: fan-in, wait_for: [a], output: {{sum: "{{{{ fan_in.results }}}}"}}}}
        - {{id: b, type: shell, run: "echo {{{{ {expression} }}}}"}}
    """)
    found = warnings(text)
    assert len(found) == 1
    assert said in found[0][1]


@pytest.mark.parametrize(
    "expression",
    [
        "inputs['x y']",
        "item.name",
        "fan_in.results[0]",
        "context.run_id",
        "steps.p.output.anything",
        "steps.p.status",
        "steps.a.output['stdout']",
        "steps.s.output.own",
        "steps.in.output.sum",
        "steps.a.output",
        "steps",
    ],
)
def test_names_that_may_be_there_are_not_warned_of(expression):
    text = steps(f"""
        - {{id: a, type: shell, run: ls}}
        - {{id: p, type: python, call: "m:f"}}
        - {{id: in, type: fan-in, wait_for: [a], output: {{sum: 1}}}}
        - {{id: s, type: if, condition: true, then: []}}
        - {{id: each, type: fan-out, items: [1], step: {{id: s, type: python, call: "m:f"}}}}
        - {{id: b, type: prompt, prompt: "{{{{ {expression} }}}}"}}
    """).replace("steps:", "inputs: {'x y': {}}\nsteps:", 1)
    assert warnings(text) == ()


def test_what_is_not_used_is_warned_of_outside_of_steps():
    text = (
        "workflow: {id: flow, tags: [x]}\nrequires: {tools: x}\ninput: {}\n"
        "inputs: {a: {typo: 1}}\nsteps: [{id: a, command: x}]"
    )
    said = warnings(text)
    assert [line for line, _ in said] == [1, 2, 3, 4]
    assert (
        "there is no 'input' in a workflow's file, so it is not used; did you mean inputs?"
        in said[2][1]
    )


def test_items_that_are_no_list_are_warned_of():
    ((line, said),) = warnings(
        steps("- {id: a, type: fan-out, items: inputs.x, step: {command: x}}")
    )
    assert (line, "'items' of the fan-out 'a' is 'inputs.x', which is no list" in said) == (3, True)


@pytest.mark.parametrize(
    ("run", "line"),
    [
        ("run: eval {{ inputs.x }}", 5),
        ('run: |\n    true\n    eval "{{ inputs.x }}"', 7),
        ('run: |-\n\n    # a comment\n    eval "{{ inputs.x }}"', 8),
        ("run: >\n    true;\n    eval {{ inputs.x }}", 7),
        ("run: 'true;\n\n    eval {{ inputs.x }}'", 7),
        ('run: "true; \\\n    eval {{ inputs.x }}"', 6),
        ("run: true;\n    eval\n    {{ inputs.x }}", None),
    ],
)
def test_warnings_of_a_script_have_the_line_of_the_file(run, line):
    text = "inputs: {x: {}}\n" + steps(f"- id: a\n  type: shell\n  {run}").replace(
        "    - id", "- id"
    )
    found = [at for at, _ in warnings(text)]
    assert len(found) == 1
    assert line is None or text.splitlines()[found[0] - 1].strip().lstrip("run: |>'").startswith(
        ("eval", "true; \\", '"{{', "{{")
    ), found
    assert line is None or found == [line + 1], found


# --- samples and custom kinds


def test_the_words_of_a_sample_are_checked_but_for_expressions():
    seen = []

    def check(facts):
        seen.append(facts)
        return "there is no 'bredth' in a sample"

    text = steps("""
        - id: a
          type: sample
          sample: {prompt: "like {{ item }}", bredth: "{{ inputs.n }}",
            checks: ["max-words {{ 1 }}"], depth: 2}
    """)
    (said,) = problems(text, check_sample=check)
    assert said == "flow.yaml:5: the sample 'a': there is no 'bredth' in a sample"
    assert seen == [{"prompt": "like {{ item }}", "bredth": None, "checks": None, "depth": 2}]


class Kind:
    def __init__(self, says=None):
        self.says = says

    def __call__(self, config, context):
        return {}

    def check(self, config):
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


CUSTOM = steps("- {id: a, type: mine, anything: '{{ item }}', name: n, retry: 2, input: {x: 1}}")


def test_a_registered_kind_takes_any_key():
    (step,) = load(CUSTOM, "flow.yaml", kinds={"mine": Kind()}).steps
    assert isinstance(step, typed.Custom)
    assert list(step.config) == ["anything", "name", "input"]
    assert step.config["anything"].lone
    assert (step.common.type, step.common.retry) == ("mine", 2)
    assert load(CUSTOM, "flow.yaml", kinds={"mine": lambda config, context: {}})


def test_a_registered_kind_may_refuse_its_config():
    (said,) = problems(CUSTOM, kinds={"mine": Kind("it needs a colour")})
    assert said == "flow.yaml:3: the mine step 'a': it needs a colour"


def test_a_broken_kind_is_named():
    (said,) = problems(CUSTOM, kinds={"mine": Kind(RuntimeError("x\ny"))})
    assert said.startswith(
        "flow.yaml:3: the mine step 'a': its kind is broken: check raised RuntimeError: x y"
    )


def test_a_kind_that_is_not_registered_is_unknown_and_one_that_is_may_be_meant():
    (said,) = problems(CUSTOM.replace("mine", "mien"), kinds={"mine": Kind()})
    assert "there is no type 'mien'; did you mean mine?" in said


# --- files as steps


@pytest.fixture
def folder(tmp_path):
    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


def calling(*files):
    return (
        HEADER
        + "steps:\n"
        + "".join(
            f"- {{id: s{n}, type: workflow, workflow: {name}}}\n" for n, name in enumerate(files)
        )
    )


INNER = "workflow: {id: inner}\nsteps: [{id: a, command: x}]\n"


def test_a_file_can_be_a_step(folder):
    inner = "inputs: {spec: {required: true}, n: {type: number, default: 3}}\n" + INNER
    outer = (
        HEADER
        + "steps: [{id: a, type: workflow, workflow: inner.yaml, input: {spec: '{{ item }}'}}]"
    )
    (step,) = load(outer, "dir/flow.yaml", directory=folder(inner=inner)).steps
    assert isinstance(step, typed.CallStep)
    assert (step.file, step.workflow.id, step.workflow.file) == (
        "inner.yaml",
        "inner",
        "dir/inner.yaml",
    )
    assert step.given["spec"].lone


def test_inputs_handed_to_a_file_must_be_its_own(folder):
    inner = "inputs: {spec: {required: true}}\n" + INNER
    outer = HEADER + "steps:\n- {id: a, type: workflow, workflow: inner.yaml,\n   input: {spce: 1}}"
    assert problems(outer, directory=folder(inner=inner)) == [
        "flow.yaml:3: the step 'a' must give inner.yaml its input 'spec'",
        "flow.yaml:4: inner.yaml has no input 'spce'; did you mean spec?",
    ]


def test_problems_of_an_inner_file_have_its_own_name_and_line_and_come_once(folder):
    inner = "workflow: {id: inner}\nsteps:\n- {id: a, type: nope}\n"
    said = problems(calling("inner.yaml", "inner.yaml"), directory=folder(inner=inner))
    assert len(said) == 1
    assert said[0].startswith("inner.yaml:3: the step 'a': there is no type 'nope'")


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("other.yaml", "there is no such file"),
        ("/etc/inner.yaml", "it must be a path beneath the directory of this file"),
        ("../inner.yaml", "it must be a path beneath the directory of this file"),
        ("sub/../inner.yaml", "it must be a path beneath the directory of this file"),
        ("speckit", "workflows that are installed by their id are not run here"),
        ("'{{ inputs.x }}.yaml'", "it must be a file's name as it is, not an expression"),
        ("link.yaml", "it must not be a symbolic link, nor lead through one"),
        ("linked/inner.yaml", "it must not be a symbolic link, nor lead through one"),
        ("folder.yaml", "it is no regular file"),
        ("pipe.yaml", "it is no regular file"),
        ("big.yaml", "it is larger than 5 MiB"),
        ("'" + "x" * 300 + ".yaml'", "there is no such file"),
        ("flow.yaml", "these files stand within each other: flow.yaml -> flow.yaml"),
    ],
)
def test_what_is_no_file_beneath_the_directory_is_refused(folder, named, says):
    directory = folder(inner=INNER, flow=calling("flow.yaml"))
    (directory / "link.yaml").symlink_to("inner.yaml")
    (directory / "real").mkdir()
    (directory / "real" / "inner.yaml").write_text(INNER)
    (directory / "linked").symlink_to("real")
    (directory / "folder.yaml").mkdir()
    os.mkfifo(directory / "pipe.yaml")
    (directory / "big.yaml").write_text("#" * (5 * 1024 * 1024 + 1))
    (said,) = problems(calling(named), directory=directory)
    assert said.startswith("flow.yaml:3: the workflow ")
    assert says in said


def test_an_inner_file_that_can_not_be_read_is_named(folder):
    directory = folder()
    (directory / "inner.yaml").write_bytes(b"a: \xff")
    assert problems(calling("inner.yaml"), directory=directory) == [
        "inner.yaml:1: the file is not UTF-8: byte 3 can't be read"
    ]


def test_an_inner_file_that_vanishes_is_named(folder, monkeypatch):
    def gone(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", gone)
    assert problems(calling("inner.yaml"), directory=folder(inner=INNER)) == [
        "inner.yaml:1: the file can't be read: Permission denied"
    ]


def test_files_within_each_other_in_a_circle_are_refused(folder):
    directory = folder(a=calling("b.yaml"), b=calling("a.yaml"))
    (said,) = problems(calling("a.yaml"), directory=directory)
    assert said == (
        "b.yaml:3: the workflow 'a.yaml': these files stand within each other: "
        "a.yaml -> b.yaml -> a.yaml"
    )


def test_files_stand_within_each_other_sixteen_deep_and_no_deeper(folder):
    # Each file is read once, not 2**15 times.
    files = {f"f{n}": calling(f"f{n + 1}.yaml", f"f{n + 1}.yaml") for n in range(1, 16)}
    directory = folder(**files, f16=INNER)
    load(calling("f2.yaml"), "flow.yaml", directory=directory)
    assert "more than 16 deep" in problems(calling("f1.yaml"), directory=directory)[0]
    said = problems(
        calling("f2.yaml") + "- {id: x, type: workflow, workflow: f1.yaml}\n", directory=directory
    )
    assert any("deep" in one for one in said)


def test_steps_nested_through_files_are_bounded(folder):
    inner = "{id: last, type: workflow, workflow: NEXT}"
    for n in range(30):
        inner = f"{{id: s{n}, type: if, condition: true, then: [{inner}]}}"
    text = f"{HEADER}steps: [{inner}]"
    directory = folder(a=text.replace("NEXT", "b.yaml"), b=text.replace("NEXT", "c.yaml"), c=INNER)
    said = problems(text.replace("NEXT", "a.yaml"), directory=directory)
    assert "steps are nested more than 64 levels deep" in said[0]


def test_a_path_with_folders_is_relative_to_the_file_that_names_it(folder):
    directory = folder(inner=INNER)
    (directory / "sub").mkdir()
    (directory / "sub" / "one.yaml").write_text(calling("two.yaml"))
    (directory / "sub" / "two.yaml").write_text(INNER.replace("command", "comand"))
    (said,) = problems(calling("sub/one.yaml"), directory=directory)
    assert re.match(r"sub/two\.yaml:2: ", said)
