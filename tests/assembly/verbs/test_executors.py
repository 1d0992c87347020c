"""`executor=` of the jobs in Python: the names of the command line."""

import tempfile
from pathlib import Path

import pytest

import abreast
from tests.worktrees.repositories import ENVIRONMENT, make_repository

JOBS = {
    "optimize": lambda given: abreast.optimize("mod.py::f", tests="test_mod.py", executor=given),
    "plan": lambda given: abreast.plan(".", work="true", executor=given),
    "workflow": lambda given: abreast.workflow("flow.yaml", executor=given),
    "matrix": lambda given: abreast.matrix("study.yaml", executor=given),
}


@pytest.mark.parametrize("job", JOBS)
async def test_an_unknown_executor_is_refused_before_anything_is_read(job):
    with pytest.raises(ValueError, match=r"there is no executor 'rey'; choose one of local"):
        await JOBS[job]("rey")


@pytest.fixture
def elsewhere(ray_cluster, monkeypatch):
    """A directory that no node sees."""
    folder = Path(tempfile.mkdtemp(dir=ray_cluster.hidden))
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    monkeypatch.setenv("ABREAST_CACHE", str(folder / "cache"))
    monkeypatch.setenv("ABREAST_LOCKS", str(folder))
    return folder


@pytest.mark.ray
@pytest.mark.usefixtures("unmeasured")
async def test_the_parts_of_a_plan_are_changed_by_a_closure_on_the_nodes(elsewhere, ray_cluster):
    shop = make_repository(elsewhere / "shop", {"a/x.txt": "price\n", "b/y.txt": "price\n"})
    word = "cost"

    def rename(part):
        for place in part.places:
            place.write_text(place.read_text().replace("price", word))
        return str(part.path)

    result = await abreast.plan(shop, work=rename, executor="ray", min_files=1, max_files=1)
    assert result.ok
    caches = tuple(map(str, ray_cluster.caches))
    assert all(part.value.startswith(caches) for part in result.parts)
    await result.apply()
    assert [(shop / name).read_text() for name in ("a/x.txt", "b/y.txt")] == ["cost\n"] * 2


@pytest.mark.ray
@pytest.mark.usefixtures("unmeasured")
async def test_candidates_are_checked_on_the_nodes(elsewhere, monkeypatch, ray_cluster):
    test = "from mod import f\n\n\ndef test_f():\n    assert f(3) == 6\n"
    source = "def f(number):\n    return number + number\n"
    place = make_repository(elsewhere / "project", {"mod.py": source, "test_mod.py": test})
    monkeypatch.chdir(place)
    texts = ["def f(number):\n    return 2 * number\n", "def f(number):\n    return 6\n"]
    result = await abreast.optimize(
        "mod.py::f",
        tests="test_mod.py",
        candidates=texts,
        timing=False,
        generated=5,
        executor="ray",
    )
    assert [one.verdict for one in result.candidates] == ["same", "wrong"]


FLOW = """
workflow: {id: flow}
steps:
  - {id: one, type: shell, run: "echo $ABREAST_AGENT"}
"""
STUDY = """
matrix:
  models: [scripted/replies.jsonl]
  strategies: {steps: {workflow: flow.yaml}}
  inputs: [{id: a}]
"""


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster", "unmeasured")
async def test_commands_of_workflows_and_of_studies_run_on_the_nodes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "replies.jsonl").write_text("")
    flow = await abreast.workflow(tmp_path / "flow.yaml", executor="ray")
    assert flow.steps["one"].output["stdout"].strip().isdecimal()
    study = await abreast.matrix(tmp_path / "study.yaml", executor="ray")
    (row,) = study.rows()
    assert row["error"] is None, row["error"]
    assert row["output"].strip().isdecimal()
