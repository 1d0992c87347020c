"""A project that `specify init` has made runs its own workflow, unmodified, with an agent."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.agents.stubs import stub_toml, write_stub

SPECIFY = Path(__file__).resolve().parents[2] / ".peers/specify-cli/bin/specify"
INTEGRATIONS = ("claude", "codex")
CODE = """
open("asked", "a").write(task + "\\n")
end("did " + task, cost=0.25)
"""
# What `specify init` writes where commands are skills.
SETTINGS = {
    "version": "1.2.3",
    "integration_state_schema": 1,
    "installed_integrations": ["claude"],
    "integration_settings": {"claude": {"script": "sh", "invoke_separator": "-"}},
    "integration": "claude",
    "default_integration": "claude",
}
FLOW = """
workflow: {id: a}
steps:
  - {id: one, command: speckit.git.commit, integration: auto, input: {args: a b.c}}
  - {id: two, command: speckit.plan, integration: INTEGRATION}
  - {id: three, type: prompt, prompt: "/speckit.x, as it is", integration: other}
"""


@pytest.fixture
def project(abreast, tmp_path):
    stub = write_stub(tmp_path, CODE)
    names = (*INTEGRATIONS, "other")
    abreast.file("abreast.toml", "".join(stub_toml(stub, name) for name in names))
    return abreast


def asked(project):
    return (project.folder / "asked").read_text().splitlines()


@pytest.mark.parametrize(("name", "mark"), [("claude", "/"), ("codex", "$")])
def test_commands_are_called_as_the_skills_that_they_are(project, name, mark):
    settings = json.dumps(SETTINGS).replace("claude", name)
    project.file(".specify/integration.json", settings)
    project.file("flow.yaml", FLOW.replace("INTEGRATION", name))
    said = project("run", "flow.yaml", "--quiet")
    assert said.code == 0, said
    commands = [f"{mark}speckit-git-commit a b.c", f"{mark}speckit-plan", "/speckit.x, as it is"]
    assert asked(project) == commands


@pytest.mark.parametrize("settings", ["[]", "{", json.dumps({"integration": "claude"})])
def test_commands_keep_their_names_where_nothing_says_that_they_are_skills(project, settings):
    project.file(".specify/integration.json", settings)
    project.file(".specify/init-options.json", json.dumps({"ai": "claude"}))
    project.file("flow.yaml", FLOW.replace("INTEGRATION", "claude"))
    assert project("run", "flow.yaml", "--quiet").code == 0
    assert asked(project)[:2] == ["/speckit.git.commit a b.c", "/speckit.plan"]


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_an_initialised_project_runs_its_workflow_unmodified(project, name):
    if not SPECIFY.exists():
        pytest.skip("specify-cli is not installed: python -m benchmarks.peers specify-cli")
    subprocess.run(
        [
            *(SPECIFY, "init", "--here", "--force", "--non-interactive", "--ignore-agent-tools"),
            *("--integration", name),
        ],
        cwd=project.folder,
        env={**project.environment, "HOME": str(project.folder)},
        check=True,
        capture_output=True,
        timeout=60,
    )
    workflow = ".specify/workflows/speckit/workflow.yml"
    said = project("run", workflow, "-i", "spec=a bridge", "--budget", "9usd", "--json")
    for gate in ("review-spec", "review-plan"):
        assert json.loads(said.out)["status"] == "paused", said
        said = project("resume", "-i", f"{gate}=approve", "--json")
    assert said.code == 0, said
    assert json.loads(said.out)["status"] == "completed"
    # Each is a skill that is there.
    skills = [path.parent.name for path in project.folder.rglob("SKILL.md")]
    mark = "$" if name == "codex" else "/"
    wanted = [f"speckit-{step}" for step in ("specify", "plan", "tasks", "implement")]
    assert asked(project) == [f"{mark}{skill} a bridge" for skill in wanted]
    assert {*wanted} <= {*skills}
    assert json.loads(project("show", "last", "--json").out)["spent"]["usd"] == 1.0
