"""Names of runs, studies, steps and items are never used as paths: files stay in their folder."""

import json
import subprocess

import pytest

from tests.cli.shell import Shell
from tests.cli.storms import start_storm
from tests.jobs.candidates.projects import QUICK, SLOW, TESTS, WRONG

UP = "../../../pwned"
NAMES = (UP, "/pwned", "..", "a\\..\\b", "-rf", "n" * 300)


@pytest.fixture
def project(tmp_path, warm):
    """A project three folders deep, so that what leaves it is seen."""
    folder = tmp_path / "above" / "between" / "project"
    folder.mkdir(parents=True)
    shell = Shell(folder, warm)
    shell.environment |= {"ABREAST_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path / "home")}
    return shell


def outside(project):
    """What is beside the project and above it."""
    top = project.folder.parents[2]
    ours = {"cache", "home"}  # where caches belong
    return {
        path
        for path in top.rglob("*")
        if not path.is_relative_to(project.folder) and path.relative_to(top).parts[0] not in ours
    }


def written(project, kind):
    """The files of that kind, wherever they are in the project, by their folders."""
    return [
        str(path.parent.relative_to(project.folder)) for path in project.folder.rglob(f"*.{kind}")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_studys_report_is_beside_its_store_whatever_it_is_called(project, name):
    project.file("data.jsonl", '{"id": "one", "text": "a", "truth": "e"}\n')
    study = {
        "name": name,
        "models": ["a/one"],
        "inputs": "data.jsonl",
        "scores": ["contains"],
        "strategies": {"plain": {"prompt": "say {{ input.text }}", "max_tokens": 5}},
    }
    project.file("study.yaml", json.dumps({"matrix": study}))
    with start_storm() as storm:
        project.file(
            "abreast.toml",
            f'[lanes.a]\nbase_url = "{storm.url}/v1"\nprice = {{input = 1.0, output = 2.0}}\n',
        )
        before = outside(project)
        said = project("matrix", "run", "study.yaml")
    assert said.code == 0, said
    assert outside(project) == before
    assert written(project, "html") == [".abreast/reports"]


@pytest.mark.parametrize("name", [UP, "/pwned", "n" * 300])
def test_the_page_of_a_run_is_written_here_whatever_the_run_is_called(project, name):
    assert project("map", "--name", name, "--", "echo", "{}", given="a\n").code == 0
    before = outside(project)
    said = project("export", "--html", "last")
    assert said.code == 0, said
    assert outside(project) == before
    assert written(project, "html") == ["."]


def test_a_workflow_and_its_steps_are_no_paths(project):
    steps = [
        {"id": UP, "type": "shell", "run": "echo hi"},
        {"id": "..", "type": "shell", "run": "echo ho"},
    ]
    project.file(
        "flow.yaml",
        json.dumps({"workflow": {"id": UP, "name": UP, "version": "1.0.0"}, "steps": steps}),
    )
    before = outside(project)
    said = project("run", "flow.yaml")
    project("export", "--html", "last")
    assert outside(project) == before
    assert "Traceback" not in said.err


def in_git(project):
    (project.folder / ".git").rmdir()
    for words in (
        ["init", "-q"],
        ["config", "user.email", "a@example.org"],
        ["config", "user.name", "a"],
        ["add", "-A"],
        ["commit", "-qm", "one"],
    ):
        subprocess.run(["git", *words], cwd=project.folder, check=True, capture_output=True)


def test_the_report_of_an_optimisation_is_beside_its_store_whatever_the_names(
    project,
):
    for name, text in {"sums.py": SLOW, "test_sums.py": TESTS, "pytest.ini": QUICK}.items():
        project.file(name, text)
    project.file("drafts/..%2f..%2fpwned.py", WRONG)
    in_git(project)
    before = outside(project)
    said = project(
        "optimize",
        "sums.py::pairs",
        "--tests",
        "test_sums.py",
        "--candidates",
        "drafts",
        "--name",
        UP,
        "--generated",
        "0",
    )
    assert said.code in (0, 1), said
    assert "Traceback" not in said.err
    assert outside(project) == before
    assert written(project, "html") == [".abreast/reports"]


@pytest.mark.parametrize("name", [UP, "n" * 300])
def test_what_a_plan_keeps_is_in_its_own_place_whatever_the_run_and_the_folders_are_called(
    project, name
):
    for folder in ("alpha", "..beta", "-gamma", "d" * 120):
        for number in range(3):
            project.file(f"src/{folder}/m{number}.py", f"x = {number}\n")
    in_git(project)
    before = outside(project)
    command = "for file in {files}; do echo 'y = 1' >> ./$file; done"
    said = project("plan", "run", "src", "--min-files", "2", "--name", name, "--command", command)
    assert said.code == 0, said
    assert project("plan", "apply", "last").code == 0
    assert outside(project) == before
