"""Options of a step for an agent's command line are passed on, or refused before anything runs."""

import json

import pytest

PARROT = """
[runners.parrot]
argv = ["printf", "%s|", "{args}", "{prompt}"]
model = ["-m", "{model}"]
[runners.parrot.options]
tools = ["--tools", "{value}"]
turns = ["--turns={value}"]
safe = ["--safe"]

[runners.deaf]
argv = ["echo", "{prompt}"]
"""
HEAD = (
    "workflow: {id: a}\ninputs: {agent: {type: string, default: parrot}, tools: {type: string, "
    "default: Read}}\n"
)


def flow(*words):
    return f"{HEAD}steps:\n  - {{id: s, command: go, {', '.join(words)}}}\n"


def test_arguments_and_options_of_a_step_reach_the_agent_as_they_are(abreast):
    abreast.file("abreast.toml", PARROT)
    args = 'integration_args: ["--dir", "{{ inputs.tools }} {prompt}; id"]'
    options = 'integration_options: {tools: "{{ inputs.tools }}", turns: 3, safe: true}'
    abreast.file("flow.yaml", flow("integration: parrot", "model: m1", args, options))
    found = json.loads(abreast("run", "flow.yaml", "--json").out)["steps"]["s"]["output"]
    assert found["stdout"] == "--dir|Read {prompt}; id|--tools|Read|--turns=3|--safe|/go|-m|m1|"
    assert found["integration_args"] == ["--dir", "Read {prompt}; id"]
    assert found["integration_options"] == {"tools": "Read", "turns": 3, "safe": True}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["integration: deaf", 'integration_args: ["-x"]'],
            "the runner 'deaf' would leave out integration_args",
        ),
        (
            ["integration: parrot", "integration_options: {tool: Read}"],
            "has no words for the option 'tool'",
        ),
        (
            ["integration: deaf", "integration_options: {tools: Read}"],
            "has no words for the option 'tools'",
        ),
    ],
)
def test_what_a_runner_would_leave_out_is_refused_before_anything_runs(abreast, words, says):
    abreast.file("abreast.toml", PARROT)
    abreast.file("flow.yaml", flow(*words))
    for more in (["--check"], ["--dry-run"], []):
        said = abreast("run", "flow.yaml", *more)
        assert (said.code, said.out) == (2, "")
        assert "flow.yaml:4: the step 's': " in said.err
        assert says in said.err
    assert not abreast.store.exists()


def test_an_agent_that_an_input_names_is_refused_too(abreast):
    abreast.file("abreast.toml", PARROT)
    abreast.file("flow.yaml", flow('integration: "{{ inputs.agent }}"', 'integration_args: ["-x"]'))
    assert abreast("run", "flow.yaml", "--check").code == 0
    assert abreast("run", "flow.yaml").code == 0
    said = abreast("run", "flow.yaml", "-i", "agent=deaf")
    assert said.code == 2
    assert "the runner 'deaf' would leave out integration_args" in said.err


def test_an_agent_that_only_a_step_names_fails_rather_than_runs_without_its_restrictions(abreast):
    abreast.file("abreast.toml", PARROT)
    named = "  - {id: who, type: shell, run: printf deaf}\n"
    step = flow(
        'integration: "{{ steps.who.output.stdout }}"', "integration_options: {tools: Read}"
    )
    abreast.file("flow.yaml", step.replace("steps:\n", f"steps:\n{named}"))
    said = abreast("run", "flow.yaml")
    assert said.code == 1
    assert (
        "the step 's': the runner 'deaf' can't be started: it has no words for the option 'tools'"
        in said.err
    )


@pytest.mark.parametrize("value", ["[a]", "null", "{a: 1}"])
def test_an_option_that_has_no_form_as_an_argument_fails_the_step(abreast, value):
    abreast.file("abreast.toml", PARROT)
    abreast.file(
        "flow.yaml", flow("integration: parrot", f"integration_options: {{tools: {value}}}")
    )
    said = abreast("run", "flow.yaml")
    assert said.code == 1
    assert "its option 'tools' must be a text or a number" in said.err


LOUD = """
[runners.loud]
argv = ["sh", "-c", "printf 'aaaaé'; printf 'bbbbbb' >&2"]
"""


@pytest.mark.parametrize(
    ("capture", "stdout", "stderr", "cut"),
    [
        ("capture_max_bytes: 5", "aaaa", "bbbbb", True),
        ("capture_max_bytes: -1", "aaaaé", "bbbbbb", False),
        ("capture_max_bytes: 6", "aaaaé", "bbbbbb", False),
    ],
)
def test_no_more_is_kept_of_what_an_agent_wrote_than_the_step_says(
    abreast, capture, stdout, stderr, cut
):
    abreast.file("abreast.toml", LOUD)
    abreast.file("flow.yaml", flow("integration: loud", "capture: true", capture))
    found = json.loads(abreast("run", "flow.yaml", "--json").out)["steps"]["s"]["output"]
    assert (found["stdout"], found["text"], found["stderr"]) == (stdout, stdout, stderr)
    assert (found["stdout_truncated"], found["stderr_truncated"]) == (cut, cut)


def test_no_more_is_kept_of_a_reply_than_the_step_says(abreast):
    abreast.file("replies.jsonl", '{"prompt": "x", "reply": "aaaaé and more"}\n')
    prompt = (
        "{id: s, type: prompt, prompt: x, model: scripted/replies.jsonl, capture: true, "
        "capture_max_bytes: 5}"
    )
    abreast.file("flow.yaml", f"workflow: {{id: a}}\nsteps:\n  - {prompt}\n")
    found = json.loads(abreast("run", "flow.yaml", "--json").out)["steps"]["s"]["output"]
    assert (found["text"], found["stdout"], found["stdout_truncated"]) == ("aaaa", "aaaa", True)


def test_all_that_was_written_is_asked_for_and_can_not_be_kept_is_a_failure(abreast):
    abreast.file("abreast.toml", f'{LOUD}[workflow]\nmax_output = "5B"\n')
    abreast.file("flow.yaml", flow("integration: loud", "capture: true", "capture_max_bytes: -1"))
    said = abreast("run", "flow.yaml")
    assert said.code == 1
    assert "2 bytes of what it wrote are not kept" in said.err
