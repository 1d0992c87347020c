"""A missing package or key is reported in one sentence before the first item."""

import os
import sys
from pathlib import Path

import pytest

from tests.jobs.candidates.projects import FAST, SLOW, TESTS

ROOT = Path(__file__).parents[2]
STUDY = """
matrix:
  name: small
  models: [local/smollm2]
  strategies:
    plain: {prompt: "Say {{ input.text }}"}
  inputs: [{id: a, text: hello}]
  scores: [{contains: a}]
"""


@pytest.fixture
def without(abreast, tmp_path):
    """Runs abreast in a process in which some modules can't be imported."""

    def call(*words, hidden=("xllamacpp",), given=""):
        lines = "".join(
            f"assert {name!r} not in sys.modules\nsys.modules[{name!r}] = None\n" for name in hidden
        )
        script = tmp_path / "without.py"
        ending = "from abreast.__main__ import main\nsys.exit(main())\n"
        script.write_text(f"import sys\n{lines}{ending}")
        return abreast(*words, given=given.encode(), program=str(script))

    return call


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (("map", "--prompt", "Say {}", "-m", "local/smollm2"), "local"),
        (("sample", "Say hello", "-m", "local/smollm2"), "local"),
        (("ask", "-m", "local/smollm2", "Hello"), "local"),
    ],
)
def test_a_missing_extra_is_found_before_the_first_item(abreast, without, words, needs):
    said = without(*words, given="".join(f"item {number}\n" for number in range(300)))
    assert said.code == 2, said.err
    assert len(said.err.splitlines()) == 1
    assert f"{ROOT}[{needs}]'" in said.err
    assert not abreast.store.exists()


def test_a_study_names_the_arms_that_an_extra_is_missing_for(abreast, without):
    abreast.file("study.yaml", STUDY)
    said = without("matrix", "run", "study.yaml", "--no-report")
    assert said.code == 2, said.err
    assert f"{ROOT}[local]'" in said.err
    assert "no cell can run" in said.err


def test_a_missing_pytest_is_found_before_a_model_is_asked(abreast, tmp_path):
    abreast.file("sums.py", SLOW)
    abreast.file("test_sums.py", TESTS)
    abreast.file("drafts/fast.py", FAST)
    (abreast.folder / ".git").rmdir()
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    said = abreast(
        "optimize",
        "sums.py::pairs",
        "--tests",
        "test_sums.py",
        "--candidates",
        "drafts",
        "--python",
        bare,
        PYTHONPATH=os.pathsep.join(
            path for path in sys.path if path and "site-packages" not in path
        ),
    )
    assert said.code == 2, said.err
    assert f"pytest is not installed for {bare}" in said.err
    assert not abreast.store.exists()


FLOW = """
workflow: {id: agents, name: Agents, version: "1.0.0"}
steps:
  - {id: first, type: shell, run: "touch ran"}
  - id: all
    type: fan-out
    items: "{{ [1, 2, 3] }}"
    step: {id: one, type: prompt, integration: agent, prompt: "Do {{ item }}"}
"""


@pytest.mark.parametrize("program", ["no-such-agent", "./no-such-agent"])
def test_a_missing_runner_is_found_before_the_first_step(abreast, program):
    abreast.file("flow.yaml", FLOW)
    abreast.file("abreast.toml", f'[runners.agent]\nargv = ["{program}", "{{prompt}}"]\n')
    said = abreast("run", "flow.yaml")
    assert said.code == 2, said.err
    assert (
        f"flow.yaml:8: the runner 'agent' can't be started: there is no command '{program}' here"
        in said.err
    )
    assert not (abreast.folder / "ran").exists()
    assert abreast("run", "flow.yaml", "--simulate").code == 0  # which starts nothing


def test_a_runner_counts_from_the_directory_of_the_run(abreast):
    abreast.file("flow.yaml", FLOW)
    abreast.file("agent.sh", "#!/bin/sh\necho got $1\n", mode=0o755)
    abreast.file("abreast.toml", '[runners.agent]\nargv = ["./agent.sh", "{prompt}"]\n')
    assert abreast("run", "flow.yaml").code == 0


COMMANDS = """
workflow: {{id: agents, name: Agents, version: "1.0.0"{header}}}
inputs: {{agent: {{default: theirs}}, hidden: {{secret: true}}}}
steps:
  - {{id: first, type: shell, run: "touch ran"}}
  - {{id: ask, type: gate, message: "Go on?", options: [approve, reject]}}
  - {{id: choose, type: if, condition: "{{{{ steps.ask.output.choice == 'approve' }}}}", then: \
[{step}]}}
"""
CALLED = "workflow: {id: inner, integration: theirs}\nsteps:\n  - {id: b, command: speckit.plan}\n"


@pytest.mark.parametrize(
    ("header", "step", "says"),
    [
        (
            "",
            "{id: a, command: plan, integration: theirs}",
            "flow.yaml:7: there is no runner 'theirs'; declare it in",
        ),
        (
            ", integration: theirs",
            "{id: a, command: plan}",
            "flow.yaml:7: there is no runner 'theirs'",
        ),
        (
            "",
            "{id: a, command: plan, integration: '{{ inputs.agent }}'}",
            "flow.yaml:7: there is no runner 'theirs'",
        ),
        (
            "",
            "{id: a, type: workflow, workflow: inner.yaml}",
            "inner.yaml:3: there is no runner 'theirs'",
        ),
        (
            "",
            "{id: a, command: plan, integration: gone}",
            "flow.yaml:7: the runner 'gone' can't be started",
        ),
    ],
)
def test_an_agent_without_a_runner_is_found_before_the_first_step_though_a_gate_stands_before_it(
    abreast, header, step, says
):
    abreast.file("inner.yaml", CALLED)
    abreast.file("abreast.toml", '[runners.gone]\nargv = ["no-such-agent", "{prompt}"]\n')
    abreast.file("flow.yaml", COMMANDS.format(header=header, step=step))
    said = abreast("run", "flow.yaml")
    assert (said.code, said.out, len(said.err.splitlines())) == (2, "", 1), said
    assert says in said.err
    assert not (abreast.folder / "ran").exists()
    both = "".join(
        f'[runners.{name}]\nargv = ["echo", "{{prompt}}"]\n' for name in ("theirs", "gone")
    )
    abreast.file("abreast.toml", both)
    assert "paused: the gate 'ask' waits" in abreast("run", "flow.yaml").err


def test_a_command_for_no_agent_at_all_is_found_before_the_first_step(abreast):
    abreast.file("flow.yaml", COMMANDS.format(header="", step="{id: a, command: plan}"))
    for more in ([], ["--check"]):
        said = abreast("run", "flow.yaml", *more)
        assert (said.code, said.out) == (2, "")
        assert (
            "flow.yaml:7: the command 'plan' is for an agent, and no integration says which"
            in said.err
        )
    assert not (abreast.folder / "ran").exists()


def test_an_agent_that_only_a_step_or_a_secret_names_is_known_when_its_step_runs(abreast):
    for named in ("{{ steps.first.output.stdout }}", "{{ inputs.hidden }}"):
        step = f"{{id: a, command: plan, integration: '{named}'}}"
        abreast.file("flow.yaml", COMMANDS.format(header="", step=step))
        said = abreast("run", "flow.yaml", "--input", "hidden=geheim")
        assert (said.code, "paused" in said.err, "geheim" in said.err) == (0, True, False), said
