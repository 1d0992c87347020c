"""Integrations of a workflow that are agents: no runner has to be configured for them."""

import json

import pytest

from tests.agents.stubs import stub_toml, write_stub

CODE = """
say(kind="step", text="look")
open("asked", "a").write(task + " " + " ".join(sys.argv[1:]) + "\\n")
if "fail" in task:
    say(kind="error", text="I can't")
elif "limit" in task:
    say(kind="error", text="usage limit reached, try again in 2 hours")
else:
    end("did " + task, cost=0.25)
"""
FLOW = """
workflow: {{id: a, integration: {agent}}}
steps:
  - {{id: one, command: speckit.plan, input: {{args: a bridge}}}}
  - {{id: two, type: prompt, prompt: "after {{{{ steps.one.output.text }}}}"}}
"""


@pytest.fixture
def project(abreast, tmp_path):
    abreast.file("abreast.toml", stub_toml(write_stub(tmp_path, CODE)))
    return abreast


def steps(said):
    return json.loads(said.out)["steps"]


def test_a_command_and_a_prompt_go_to_the_agent_and_its_cost_counts(project):
    project.file("flow.yaml", FLOW.format(agent="stub"))
    said = project("run", "flow.yaml", "--json", "--budget", "5usd")
    assert said.code == 0, said
    assert steps(said)["two"]["output"]["text"] == "did after did /speckit.plan a bridge"
    assert json.loads(project("show", "last", "--json").out)["spent"]["usd"] == 0.5


def test_auto_is_the_integration_that_a_spec_kit_project_has_chosen(project):
    project.file("flow.yaml", FLOW.format(agent="auto"))
    assert "there is no runner 'auto'" in project("run", "flow.yaml").err
    project.file(".specify/integration.json", '{"integration": "stub"}')
    said = project("run", "flow.yaml", "--json")
    assert said.code == 0, said
    assert steps(said)["one"]["output"]["text"] == "did /speckit.plan a bridge"
    (project.folder / ".specify/integration.json").unlink()
    project.file(".specify/init-options.json", '{"ai": "stub"}')
    assert project("run", "flow.yaml", "--quiet").code == 0


def test_what_an_agent_may_do_is_an_option_and_no_other_is_dropped(project):
    flow = "workflow: {{id: a, integration: stub}}\nsteps:\n  - {{id: s, command: go, {more}}}\n"
    project.file("flow.yaml", flow.format(more="integration_options: {allow: run}"))
    assert project("run", "flow.yaml").code == 0
    assert (project.folder / "asked").read_text() == "/go --run\n"
    project.file("flow.yaml", flow.format(more="integration_options: {speed: 3}"))
    assert "takes the option allow alone" in project("run", "flow.yaml").err
    project.file("flow.yaml", flow.format(more="integration_options: {allow: fly}"))
    assert "can't be allowed 'fly'" in project("run", "flow.yaml").err


def test_an_agent_that_fails_fails_its_step_and_a_limit_parks_the_run(project):
    flow = "workflow: {{id: a, integration: stub}}\nsteps:\n  - {{id: s, command: {word}}}\n"
    project.file("flow.yaml", flow.format(word="fail"))
    said = project("run", "flow.yaml")
    assert said.code == 1, said
    assert "stub: I can't" in said.err
    project.file("flow.yaml", flow.format(word="limit"))
    said = project("run", "flow.yaml")
    assert said.code == 3, said
    assert "abreast resume" in said.err
