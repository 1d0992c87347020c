"""What a job needs and is not installed: told in one sentence before the first item, as a missing key is."""

import os
import sys

import pytest

from tests.jobs.candidates.projects import FAST, SLOW, TESTS

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
    """Runs abreast in an interpreter in which some modules can't be imported."""

    def call(*words, hidden=("xllamacpp", "litellm"), given=b""):
        place = tmp_path / "hidden"
        place.mkdir(exist_ok=True)
        lines = "".join(f"sys.modules[{name!r}] = None\n" for name in hidden)
        (place / "sitecustomize.py").write_text(f"import sys\n{lines}")
        path = os.pathsep.join([str(place), abreast.environment["PYTHONPATH"]])
        return abreast.anew(*words, given=given, PYTHONPATH=path)

    return call


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (("map", "--prompt", "Say {}", "-m", "local/smollm2"), "local"),
        (("map", "--prompt", "Say {}", "-m", "litellm/mistral/small"), "litellm"),
        (("sample", "Say hello", "-m", "local/smollm2"), "local"),
        (("ask", "-m", "local/smollm2", "Hello"), "local"),
    ],
)
def test_a_missing_extra_is_found_before_the_first_item(abreast, without, words, needs):
    said = without(*words, given="".join(f"item {number}\n" for number in range(300)))
    assert said.code == 2, said.err
    assert len(said.err.splitlines()) == 1
    assert f"pip install 'abreast[{needs}]'" in said.err
    assert not abreast.store.exists()


def test_a_study_names_the_arms_that_an_extra_is_missing_for(abreast, without):
    abreast.file("study.yaml", STUDY)
    said = without("matrix", "run", "study.yaml", "--no-report")
    assert said.code == 2, said.err
    assert "pip install 'abreast[local]'" in said.err
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
        "optimize", "sums.py::pairs", "--tests", "test_sums.py", "--candidates", "drafts", "--python", bare,
        PYTHONPATH=os.pathsep.join(path for path in sys.path if path and "site-packages" not in path),
    )  # fmt: skip
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
    assert f"flow.yaml:8: the runner 'agent' can't be started: there is no command '{program}' here" in said.err
    assert not (abreast.folder / "ran").exists()
    assert abreast("run", "flow.yaml", "--simulate").code == 0  # which starts nothing


def test_a_runner_counts_from_the_directory_of_the_run(abreast):
    abreast.file("flow.yaml", FLOW)
    abreast.file("agent.sh", "#!/bin/sh\necho got $1\n", mode=0o755)
    abreast.file("abreast.toml", '[runners.agent]\nargv = ["./agent.sh", "{prompt}"]\n')
    assert abreast("run", "flow.yaml").code == 0
